/** What model calls have used and cost, by day and by what one likes. */
import { useMemo } from "preact/hooks";
import { api, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { query, search } from "../../route";
import { may } from "../../session";
import { Button, Field, Select } from "../../ui/controls";
import { allOf, paged, useListing, useLoaded } from "../../ui/load";
import { csv, save } from "../../ui/save";
import { Loading, Problem } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { count, duration, money } from "../../ui/values";
import { t } from "../../words";
import { Plot, type Line } from "./plot";

type Sum = Listed<"/v1/usage">;
const GROUPS = ["model", "team", "user", "day", "agent", "kind"] as const;
const DAY = 86_400;

const dayOf = (seconds: number) => new Date(seconds * 1000).toISOString().slice(0, 10);
const secondsOf = (day: string) => Date.parse(`${day}T00:00:00Z`) / 1000;

/** What it cost. Calls of unknown price are said, and none of them is free. */
function costOf(row: Pick<Sum, "cost" | "currency" | "unpriced_calls">): string {
  if (row.cost === null) return t("ops.unknown");
  const known = money(row.cost, row.currency || "USD");
  return row.unpriced_calls ? t("ops.andUnpriced", { cost: known, n: count(row.unpriced_calls) }) : known;
}

function totals(rows: readonly Sum[]) {
  const all = { calls: 0, prompt_tokens: 0, completion_tokens: 0, unpriced_calls: 0, cost: null as number | null, currency: "" };
  for (const row of rows) {
    for (const name of ["calls", "prompt_tokens", "completion_tokens", "unpriced_calls"] as const) all[name] += row[name];
    if (row.cost !== null) {
      all.cost = (all.cost ?? 0) + row.cost;
      all.currency = row.currency;
    }
  }
  return all;
}

/** The days of a report, with those on which nothing was asked. */
function Days({ rows, from, to }: { rows: readonly Sum[]; from: number; to: number }) {
  const [times, tokens, costs] = useMemo(() => {
    const found = new Map(rows.map((row) => [row.day, row]));
    const days = Array.from({ length: Math.max(0, Math.round((to - from) / DAY)) }, (_, n) => from + n * DAY);
    const at = (read: (row: Sum) => number | null) => days.map((day) => (found.has(dayOf(day)) ? read(found.get(dayOf(day)) as Sum) : 0));
    const tokenLines: Line[] = [{ name: t("ops.tokens"), color: "accent", values: at((row) => row.total_tokens) }];
    const costLines: Line[] = [{ name: t("ops.cost"), color: "live", values: at((row) => row.cost) }];
    return [days, tokenLines, costLines];
  }, [rows, from, to]);
  const currency = rows.find((row) => row.cost !== null)?.currency;
  return (
    <div class="plots">
      <Plot title={t("ops.tokensByDay")} times={times} lines={tokens} show={count} bars />
      {currency && <Plot title={t("ops.costByDay")} times={times} lines={costs} show={(value) => money(value, currency)} bars />}
    </div>
  );
}

export function Usage() {
  const today = dayOf(Date.now() / 1000);
  const by = GROUPS.find((each) => each === query.value.get("by")) ?? "model";
  const first = query.value.get("from") ?? dayOf(secondsOf(today) - 29 * DAY);
  const last = query.value.get("to") ?? today;
  const from = secondsOf(first);
  const to = secondsOf(last) + DAY;
  const valid = from < to;
  const ask = (group_by: string, after: string | number | null) => data(api.GET("/v1/usage", { params: { query: { group_by, from, to, ...paged(after) } } }));
  const days = useLoaded(async () => (valid ? await allOf((after) => ask("day", after)) : []), [from, to]);
  const listing = useListing<Sum>(async (after) => (valid ? await ask(by, after) : { data: [], has_more: false, next: null }), [by, from, to]);
  const nameOf = (row: Sum) => String(row[by] ?? "") || t("ops.noName");
  const columns: Column<Sum>[] = [
    { name: by, head: t(`ops.by.${by}`), cell: (row) => <bdi>{nameOf(row)}</bdi>, width: "2fr" },
    { name: "calls", head: t("ops.calls"), cell: (row) => count(row.calls), numeric: true, wide: true },
    { name: "prompt", head: t("ops.prompt"), cell: (row) => count(row.prompt_tokens), numeric: true, wide: true },
    { name: "cached", head: t("ops.cached"), cell: (row) => count(row.cached_tokens), numeric: true, wide: true },
    { name: "completion", head: t("ops.completion"), cell: (row) => count(row.completion_tokens), numeric: true, wide: true },
    { name: "total", head: t("ops.tokens"), cell: (row) => count(row.total_tokens), numeric: true },
    { name: "seconds", head: t("ops.seconds"), cell: (row) => duration(row.seconds), numeric: true, wide: true },
    { name: "cost", head: t("ops.cost"), cell: costOf, width: "2fr", numeric: true },
  ];
  const download = async () => {
    const rows = await allOf((after) => ask(by, after));
    const names = ["calls", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "total_tokens", "seconds", "cost", "currency", "unpriced_calls"] as const;
    save(`usage-by-${by}-${first}-${last}.csv`, csv([[by, ...names], ...rows.map((row) => [row[by], ...names.map((name) => row[name])])]));
  };
  const all = totals(days.value ?? []);
  return (
    <>
      <div class="filters">
        <Select label={t("ops.by")} value={by} options={GROUPS.map((each) => [each, t(`ops.by.${each}`)] as const)} onValue={(value) => search({ by: value })} />
        <Field label={t("ops.from")} type="date" value={first} onValue={(value) => value && search({ from: value })} />
        <Field label={t("ops.to")} type="date" value={last} onValue={(value) => value && search({ to: value })} />
        <Button onClick={download} disabled={!valid}>
          CSV
        </Button>
        {!may("usage:read") && <span class="quiet">{t("ops.onlyYours")}</span>}
      </div>
      {!valid && <Problem error={new Error(t("ops.noDays"))} />}
      {days.error !== null ? (
        <Problem error={days.error} retry={days.reload} />
      ) : days.value === null ? (
        <Loading />
      ) : (
        <>
          <p class="sums">
            <strong>{count(all.calls)}</strong> {t("ops.calls")} · <strong>{count(all.prompt_tokens + all.completion_tokens)}</strong> {t("ops.tokens")} · {t("ops.cost")}: <strong>{all.calls ? costOf(all) : "–"}</strong>
          </p>
          <Days rows={days.value} from={from} to={to} />
        </>
      )}
      <Table label={t("ops.usage")} columns={columns} listing={listing} />
    </>
  );
}
