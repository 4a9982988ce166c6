/** What model calls have used and cost, by day and by what one likes. */
import { useMemo } from "preact/hooks";
import { api, data, type Listed } from "../../api";
import { asked, chosen, search } from "../../route";
import { may } from "../../session";
import { allOf, Button, count, csv, duration, money, optionsOf, paged, Problem, save, SearchField, Select, Show, Table, useListing, useLoaded, type After, type Column } from "../../ui";
import { t } from "../../words";
import { Plot, type Line } from "./plot";

type Sum = Listed<"/v1/usage">;
const GROUPS = ["model", "team", "user", "day", "agent", "kind"] as const;
const DAY = 86_400;
const COUNTED = ["calls", "prompt_tokens", "completion_tokens", "unpriced_calls"] as const;
const WRITTEN = ["calls", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "total_tokens", "seconds", "cost", "currency", "unpriced_calls"] as const;

const dayOf = (seconds: number) => new Date(seconds * 1000).toISOString().slice(0, 10);
const secondsOf = (day: string) => Date.parse(`${day}T00:00:00Z`) / 1000;

/** What it cost. Calls of unknown price are said, and none of them is free. */
function costOf(row: Pick<Sum, "cost" | "currency" | "unpriced_calls">): string {
  if (row.cost === null) return t("ops.unknown");
  const known = money(row.cost, row.currency || "USD");
  return row.unpriced_calls ? t("ops.andUnpriced", { cost: known, n: count(row.unpriced_calls) }) : known;
}

function Totals({ rows }: { rows: readonly Sum[] }) {
  const all = { calls: 0, prompt_tokens: 0, completion_tokens: 0, unpriced_calls: 0, cost: null as number | null, currency: "" };
  for (const row of rows) {
    for (const name of COUNTED) all[name] += row[name];
    if (row.cost !== null) Object.assign(all, { cost: (all.cost ?? 0) + row.cost, currency: row.currency });
  }
  return (
    <p class="sums">
      <strong>{count(all.calls)}</strong> {t("ops.calls")} · <strong>{count(all.prompt_tokens + all.completion_tokens)}</strong> {t("is.tokens")} · {t("is.cost")}: <strong>{all.calls ? costOf(all) : "–"}</strong>
    </p>
  );
}

/** The days of a report, with those on which nothing was asked. */
function Days({ rows, from, to }: { rows: readonly Sum[]; from: number; to: number }) {
  const [times, tokens, costs] = useMemo(() => {
    const found = new Map(rows.map((row) => [row.day, row]));
    const days = Array.from({ length: Math.max(0, Math.round((to - from) / DAY)) }, (_, n) => from + n * DAY);
    const at = (read: (row: Sum) => number | null) => days.map((day) => (found.has(dayOf(day)) ? read(found.get(dayOf(day)) as Sum) : 0));
    const line = (name: string, color: Line["color"], read: (row: Sum) => number | null): Line[] => [{ name, color, values: at(read) }];
    return [days, line(t("is.tokens"), "accent", (row) => row.total_tokens), line(t("is.cost"), "live", (row) => row.cost)];
  }, [rows, from, to]);
  const currency = rows.find((row) => row.cost !== null)?.currency;
  return (
    <div class="plots">
      <Plot title={t("ops.tokensByDay")} times={times} lines={tokens} show={count} bars />
      {currency && <Plot title={t("ops.costByDay")} times={times} lines={costs} show={(value) => money(value, currency)} bars />}
    </div>
  );
}

export default function Usage() {
  const today = dayOf(Date.now() / 1000);
  const by = chosen("by", GROUPS) ?? "model";
  const first = asked("from") || dayOf(secondsOf(today) - 29 * DAY);
  const last = asked("to") || today;
  const [from, to] = [secondsOf(first), secondsOf(last) + DAY];
  const valid = from < to;
  const ask = (group_by: string, after: After) => data(api.GET("/v1/usage", { params: { query: { group_by, from, to, ...paged(after) } } }));
  const days = useLoaded(async () => (valid ? await allOf((after) => ask("day", after)) : []), [from, to]);
  const listing = useListing<Sum>(async (after) => (valid ? await ask(by, after) : { data: [], has_more: false, next: null }), [by, from, to]);
  const number = (head: string, cell: (row: Sum) => string, wide = true): Column<Sum> => ({ head, cell, numeric: true, wide });
  const columns: Column<Sum>[] = [
    { head: t(`is.${by}`), cell: (row) => <bdi>{String(row[by] ?? "") || t("ops.noName")}</bdi>, width: "2fr" },
    number(t("ops.calls"), (row) => count(row.calls)),
    number(t("ops.prompt"), (row) => count(row.prompt_tokens)),
    number(t("ops.cached"), (row) => count(row.cached_tokens)),
    number(t("ops.completion"), (row) => count(row.completion_tokens)),
    number(t("is.tokens"), (row) => count(row.total_tokens), false),
    number(t("ops.seconds"), (row) => duration(row.seconds)),
    { ...number(t("is.cost"), costOf, false), width: "2fr" },
  ];
  const download = async () => {
    const rows = await allOf((after) => ask(by, after));
    save(`usage-by-${by}-${first}-${last}.csv`, csv([[by, ...WRITTEN], ...rows.map((row) => [row[by], ...WRITTEN.map((name) => row[name])])]));
  };
  return (
    <>
      <div class="filters">
        <Select label={t("ops.by")} value={by} options={optionsOf(GROUPS, (each) => t(`is.${each}`))} onValue={(value) => search({ by: value })} />
        <SearchField label={t("ops.from")} name="from" type="date" otherwise={first} />
        <SearchField label={t("ops.to")} name="to" type="date" otherwise={last} />
        <Button onClick={download} disabled={!valid}>
          CSV
        </Button>
        {!may("usage:read") && <span class="quiet">{t("ops.onlyYours")}</span>}
      </div>
      {!valid && <Problem error={new Error(t("ops.noDays"))} />}
      <Show of={days}>{(rows) => [<Totals rows={rows} />, <Days rows={rows} from={from} to={to} />]}</Show>
      <Table label={t("ops.usage")} columns={columns} listing={listing} />
    </>
  );
}
