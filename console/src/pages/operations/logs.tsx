/** Two logs: what was done in the tenant, by whom; and what was, or is to be, sent to one's webhooks. */
import { api, data, filled, type Listed } from "../../api";
import { asked, chosen, to } from "../../route";
import { may } from "../../session";
import { acts, Button, DialogButton, Json, optionsOf, paged, SearchField, SearchSelect, Table, Time, useListing, type Column } from "../../ui";
import { t } from "../../words";

type Entry = Listed<"/v1/audit">;
/** Kinds of what acts are done to, as the log names them. */
const KINDS = ["agent", "audit", "budget", "config", "file", "input_request", "key", "knowledge", "limit", "run", "secrets", "switch", "thread", "threads", "tool", "user", "webhook_secret"] as const;
const DAY = 86_400;

const secondsOf = (day: string) => Math.round(Date.parse(`${day}T00:00:00`) / 1000);

export function Audit() {
  const [user, thread, from, to] = [asked("user"), asked("thread"), asked("from"), asked("to")];
  const kind = chosen("kind", KINDS);
  const filters = filled({ user, thread_id: thread, action: kind, since: from && secondsOf(from), until: to && secondsOf(to) + DAY });
  const listing = useListing<Entry>((after) => data(api.GET("/v1/audit", { params: { query: { ...filters, ...paged(after) } } })), [user, thread, kind, from, to], 15);
  const columns: Column<Entry>[] = [
    { head: t("ops.action"), cell: (row) => <code>{row.action}</code>, width: "12rem" },
    { head: t("ops.at"), cell: (row) => <Time at={row.at} />, width: "8rem" },
    { head: t("ops.who"), cell: (row) => <bdi>{row.actor ? `${row.actor}${row.acted_by ? ` (${row.acted_by})` : ""}` : t(`ops.actor.${row.by}`)}</bdi> },
    { head: t("ops.subject"), cell: (row) => <bdi title={row.subject}>{row.subject}</bdi>, wide: true },
    { head: t("ops.owner"), cell: (row) => <bdi>{row.owner ?? "–"}</bdi>, wide: true },
    { head: t("ops.detail"), cell: (row) => (row.detail ? <span class="quiet">{JSON.stringify(row.detail)}</span> : "–"), width: "2fr", wide: true },
    acts("6rem", (row) => <DialogButton of={row.id} title={row.action} text={t("do.open")} wide>{() => <Json value={row} />}</DialogButton>),
  ];
  return (
    <>
      <div class="filters">
        <SearchSelect label={t("ops.action")} name="kind" options={optionsOf(KINDS)} any={t("is.all")} />
        <SearchField label={t("is.user")} name="user" />
        <SearchField label={t("is.thread")} name="thread" />
        <SearchField label={t("ops.from")} name="from" type="date" />
        <SearchField label={t("ops.to")} name="to" type="date" />
      </div>
      <Table label={t("ops.audit")} columns={columns} listing={listing} />
    </>
  );
}

type Delivery = Listed<"/v1/webhooks/deliveries">;
const COLORS = { pending: "warn", delivered: "good", given_up: "bad" } as const;

export function Webhooks() {
  const listing = useListing<Delivery>((after) => data(api.GET("/v1/webhooks/deliveries", { params: { query: paged(after) } })), [], 5);
  const retry = async (delivery: Delivery) => {
    await data(api.POST("/v1/webhooks/deliveries/{delivery_id}/retry", { params: { path: { delivery_id: delivery.id } } }));
    listing.reload();
  };
  const resend = (row: Delivery) => (
    <Button kind="ghost" label={`${t("do.sendAgain")}: ${row.id}`} onClick={() => retry(row)}>
      {t("do.sendAgain")}
    </Button>
  );
  const columns: Column<Delivery>[] = [
    { head: t("ops.event"), cell: (row) => <code>{row.type}</code>, width: "9rem" },
    { head: t("is.status"), cell: (row) => <span class={`status ${COLORS[row.state]}`}>{t(`ops.sent.${row.state}`)}</span>, width: "8rem" },
    { head: t("ops.url"), cell: (row) => <bdi title={row.url}>{row.url}</bdi>, width: "2fr", wide: true },
    { head: t("is.run"), cell: (row) => <a href={to(["runs", row.run_id])}>{row.run_id}</a>, wide: true },
    { head: t("ops.answer"), cell: (row) => <span title={row.error ?? ""}>{[row.status_code, row.error].filter(Boolean).join(" ") || "–"}</span>, width: "2fr", wide: true },
    { head: t("ops.attempts"), cell: (row) => row.attempts, width: "6rem", numeric: true, wide: true },
    { head: t("ops.made"), cell: (row) => <Time at={row.created_at} />, width: "7rem", wide: true },
    { head: t("ops.next"), cell: (row) => <Time at={row.next_at} />, width: "7rem", wide: true },
    ...(may("webhooks:write") ? [acts("7rem", resend)] : []),
  ];
  return <Table label={t("ops.webhooks")} columns={columns} listing={listing} empty={t("ops.noWebhooks")} />;
}
