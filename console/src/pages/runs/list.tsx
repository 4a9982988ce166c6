/** The list of runs, as it changes. */
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { query, to } from "../../route";
import { may } from "../../session";
import { count, duration, Empty, Lasting, Status, Table, Time, useListing, type Column } from "../../ui";
import { language, t } from "../../words";
import { BulkBar } from "./bulk";
import { RunFilters } from "./filters";
import { bySaid, filtersOf, mayDo, pageOf, type Row, VERBS } from "./rows";

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
    ...(all ? [{ head: t("is.user"), width: "minmax(5rem, 1fr)", wide: true, cell: (row: Row) => text(row.user ?? "") }] : []),
    { head: t("runs.by.thread"), width: "minmax(5rem, 1fr)", wide: true, cell: (row) => text(row.thread) },
    { head: t("runs.created"), width: "7.5rem", wide: true, cell: (row) => <Time at={row.createdAt} /> },
    {
      head: t("runs.duration"),
      width: "6rem",
      numeric: true,
      cell: (row) => (row.since === null ? duration(row.seconds) : <Lasting from={row.since} until={null} />),
    },
    { head: t("is.attempt"), width: "4.5rem", numeric: true, wide: true, cell: (row) => (row.attempt > 1 ? <strong>{row.attempt}</strong> : row.attempt) },
    { head: t("runs.turns"), width: "4rem", numeric: true, wide: true, cell: (row) => count(row.turns) },
    { head: t("is.tokens"), width: "5rem", numeric: true, wide: true, cell: (row) => count(row.tokens) },
    { head: t("runs.reason"), width: "minmax(6rem, 3fr)", wide: true, cell: (row) => text(row.reason ?? "") },
  ];
}

export function RunList() {
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
