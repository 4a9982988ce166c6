/** What was done in the tenant, by whom. */
import { api, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { query, search } from "../../route";
import { Field, Select } from "../../ui/controls";
import { DialogButton } from "../../ui/form";
import { Json } from "../../ui/json";
import { paged, useListing } from "../../ui/load";
import { Table, type Column } from "../../ui/table";
import { Time } from "../../ui/values";
import { t } from "../../words";

type Entry = Listed<"/v1/audit">;
/** Kinds of what acts are done to, as the log names them. */
const KINDS = ["agent", "audit", "budget", "config", "file", "input_request", "key", "knowledge", "limit", "run", "secrets", "switch", "thread", "threads", "tool", "user", "webhook_secret"] as const;
const DAY = 86_400;

const secondsOf = (day: string) => Math.round(Date.parse(`${day}T00:00:00`) / 1000);

export function Audit() {
  const given = (name: string) => query.value.get(name) ?? "";
  const [user, thread, from, to] = [given("user"), given("thread"), given("from"), given("to")];
  const kind = KINDS.find((each) => each === given("kind"));
  const filters = {
    ...(user ? { user } : {}),
    ...(thread ? { thread_id: thread } : {}),
    ...(kind ? { action: kind } : {}),
    ...(from ? { since: secondsOf(from) } : {}),
    ...(to ? { until: secondsOf(to) + DAY } : {}),
  };
  const listing = useListing<Entry>((after) => data(api.GET("/v1/audit", { params: { query: { ...filters, ...paged(after) } } })), [user, thread, kind, from, to], 15);
  const columns: Column<Entry>[] = [
    { name: "action", head: t("ops.action"), cell: (row) => <code>{row.action}</code>, width: "12rem" },
    { name: "at", head: t("ops.at"), cell: (row) => <Time at={row.at} />, width: "8rem" },
    { name: "who", head: t("ops.who"), cell: (row) => <bdi>{row.actor ? `${row.actor}${row.acted_by ? ` (${row.acted_by})` : ""}` : t(`ops.actor.${row.by}`)}</bdi> },
    { name: "subject", head: t("ops.subject"), cell: (row) => <bdi title={row.subject}>{row.subject}</bdi>, wide: true },
    { name: "owner", head: t("ops.owner"), cell: (row) => <bdi>{row.owner ?? "–"}</bdi>, wide: true },
    { name: "detail", head: t("ops.detail"), cell: (row) => (row.detail ? <span class="quiet">{JSON.stringify(row.detail)}</span> : "–"), width: "2fr", wide: true },
    {
      name: "do",
      head: "",
      width: "6rem",
      cell: (row) => (
        <DialogButton kind="ghost" label={`${t("do.open")}: ${row.id}`} title={row.action} text={t("do.open")} wide>
          {() => <Json value={row} />}
        </DialogButton>
      ),
    },
  ];
  return (
    <>
      <div class="filters">
        <Select label={t("ops.action")} value={kind ?? ""} options={[["", t("kn.all")], ...KINDS.map((each) => [each, each] as const)]} onValue={(value) => search({ kind: value || null })} />
        <Field label={t("ops.user")} type="search" value={user} onValue={(value) => search({ user: value || null })} />
        <Field label={t("ops.thread")} type="search" value={thread} onValue={(value) => search({ thread: value || null })} />
        <Field label={t("ops.from")} type="date" value={from} onValue={(value) => search({ from: value || null })} />
        <Field label={t("ops.to")} type="date" value={to} onValue={(value) => search({ to: value || null })} />
      </div>
      <Table label={t("ops.audit")} columns={columns} listing={listing} />
    </>
  );
}
