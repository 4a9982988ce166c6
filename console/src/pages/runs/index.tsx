/** The list of runs, as it changes, and what they are looked for by. That stands in the address, so a link shows the same. */
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { asked, path, query, search, to } from "../../route";
import { may, me } from "../../session";
import { Button, count, duration, Empty, Field, Lasting, optionsOf, PageHead, SearchField, SearchSelect, Status, Table, Tabs, Time, useListing, type Column } from "../../ui";
import { language, t } from "../../words";
import { BulkBar } from "./bulk";
import { Errors } from "./errors";
import { bySaid, FILTERS, filtersOf, mayDo, ownerOf, pageOf, VERBS, type Filter, type Row } from "./rows";
import { OneRun } from "./run";
import "./runs.css";

const STATUSES = ["created", "running", "awaiting_input", "paused", "completed", "stopped", "error"] as const;
/** What is seldom looked for. */
const SELDOM = ["text", "tool", "thread", "error_code", "error", "slower_than"] as const satisfies readonly Filter[];
const KEPT = [...FILTERS, "order"];

/** Unix seconds as a field of the browser's has them: its own time, without a zone. */
function local(seconds: string): string {
  const date = new Date(Number(seconds) * 1000);
  return seconds && !Number.isNaN(date.getTime()) ? new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
}

function MomentField({ name }: { name: "from" | "to" }) {
  const put = (value: string) => search({ [name]: value ? String(Math.floor(new Date(value).getTime() / 1000)) : null });
  return <Field label={t(`runs.by.${name}`)} type="datetime-local" value={local(asked(name))} onValue={put} />;
}

function RunFilters() {
  const [more, setMore] = useState(() => FILTERS.slice(3).some((name) => query.value.has(name)));
  const status = <SearchSelect label={t("is.status")} name="status" options={optionsOf(STATUSES, (each) => t(`status.${each}`))} any={t("runs.any")} />;
  if (!may("runs:admin"))
    return (
      <div class="filters" role="search">
        {status}
      </div>
    );
  const mine = me.value?.user ?? "";
  const isMine = asked("user") === mine;
  return (
    <div class="filters run-filters" role="search">
      {status}
      <SearchField label={t("is.team")} name="team" type="text" />
      <SearchField label={t("is.user")} name="user" type="text" />
      <SearchSelect label={t("runs.order")} name="order" options={[["slow", t("runs.slow")]]} any={t("runs.newest")} />
      <Button pressed={isMine} onClick={() => search({ user: isMine ? null : mine })}>
        {t("is.mine")}
      </Button>
      <Button kind="ghost" pressed={more} onClick={() => setMore(!more)}>
        {t("runs.moreFilters")}
      </Button>
      {more && (
        <>
          {SELDOM.map((name) => (
            <SearchField key={name} label={t(`runs.by.${name}`)} name={name} type={name === "slower_than" ? "number" : "text"} />
          ))}
          <MomentField name="from" />
          <MomentField name="to" />
        </>
      )}
      {KEPT.some((name) => query.value.has(name)) && (
        <Button kind="ghost" onClick={() => search(Object.fromEntries(KEPT.map((name) => [name, null])))}>
          {t("do.clear")}
        </Button>
      )}
    </div>
  );
}

const PAUSE = 5;
const addressOf = (row: Row) => to(["runs", row.id]);

function columns(all: boolean): Column<Row>[] {
  const text = (value: string) => <bdi title={value}>{value}</bdi>;
  return [
    {
      head: t("is.run"),
      width: "minmax(14rem, 2fr)",
      cell: (row) => (
        <>
          {text(row.team)} <code class="quiet">{row.id}</code>
        </>
      ),
    },
    { head: t("is.status"), width: "8.5rem", cell: (row) => <Status status={row.status} /> },
    ...(all ? [{ head: t("is.user"), width: "minmax(5rem, 1fr)", wide: true, cell: (row: Row) => text(ownerOf(row)) }] : []),
    { head: t("is.thread"), width: "minmax(5rem, 1fr)", wide: true, cell: (row) => text(row.thread_id) },
    { head: t("runs.created"), width: "7.5rem", wide: true, cell: (row) => <Time at={row.created_at} /> },
    {
      head: t("runs.duration"),
      width: "6rem",
      numeric: true,
      cell: (row) => (row.since === null ? duration(row.seconds) : <Lasting from={row.since} until={null} />),
    },
    { head: t("is.attempt"), width: "4.5rem", numeric: true, wide: true, cell: (row) => (row.attempt > 1 ? <strong>{row.attempt}</strong> : row.attempt) },
    { head: t("runs.kinds.turn"), width: "4rem", numeric: true, wide: true, cell: (row) => count(row.turns) },
    { head: t("is.tokens"), width: "5rem", numeric: true, wide: true, cell: (row) => count(row.usage?.["total_tokens"]) },
    { head: t("runs.reason"), width: "minmax(6rem, 3fr)", wide: true, cell: (row) => text(row.error_message ?? row.stop_code ?? "") },
  ];
}

function RunList() {
  const all = may("runs:admin");
  const filters = filtersOf(query.value);
  const key = JSON.stringify([all, filters]);
  const listing = useListing((after) => pageOf(filters, after), [key], bySaid(filters) ? 0 : PAUSE);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const clear = () => setSelected(new Set());
  useEffect(clear, [key]);
  const select = useCallback((id: string, is: boolean) => setSelected((old) => new Set(is ? [...old, id] : [...old].filter((each) => each !== id))), []);
  const shown = useMemo(() => columns(all), [all, language.value]);
  const chosen = selected.size ? listing.rows.filter((row) => selected.has(row.id)) : [];
  const steers = VERBS.some(mayDo);
  const empty = Object.keys(filters).length ? <Empty title={t("runs.noneFound")} /> : <Empty title={t("runs.none")}>{t("runs.how")}</Empty>;
  return (
    <>
      <RunFilters />
      {steers && <BulkBar selected={chosen} all={all && !bySaid(filters)} filters={filters} onClear={clear} onDone={() => (clear(), listing.reload())} />}
      <Table
        label={t("nav.runs")}
        columns={shown}
        listing={listing}
        href={addressOf}
        {...(steers ? { selected, onSelect: select } : {})}
        empty={empty}
      />
    </>
  );
}

export default function Runs() {
  const id = path.value[1];
  if (id !== undefined) return <OneRun key={id} id={id} />;
  const errors = may("runs:admin") && query.value.get("tab") === "errors";
  const tabs = [
    { href: to(["runs"]), text: t("runs.list"), current: !errors },
    { href: to(["runs"], { tab: "errors" }), text: t("runs.kinds.error"), current: errors },
  ];
  return (
    <div class="page">
      <PageHead title={t("nav.runs")} />
      {may("runs:admin") && <Tabs label={t("nav.runs")} tabs={tabs} />}
      {errors ? <Errors /> : <RunList />}
    </div>
  );
}
