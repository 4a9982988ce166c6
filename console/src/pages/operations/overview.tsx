/** How things stand: figures and plots of what the server counts, and what runs. */
import { useMemo, useState } from "preact/hooks";
import { api, ApiError, data, request, type AnyRun } from "../../api";
import { to } from "../../route";
import { may } from "../../session";
import { count, duration, Empty, Figures, Lasting, Loading, Problem, Status, Table, Time, useListing, useLoaded, type Column, type Figure } from "../../ui";
import { t } from "../../words";
import { Failures } from "../runs/errors";
import { Plot, type Line } from "./plot";
import { growth, parse, quantile, sum, type Reading } from "./prometheus";

const EVERY = 5;
/** An hour of readings. */
const KEPT = 720;
/** What is told of the last while is of so many seconds, and half a pause: readings come a moment late. */
const WHILE = 60 + EVERY / 2;
/** The first of the readings before one of them that is no longer than that before it. */
const firstOf = (readings: readonly Reading[], place: number) => readings.slice(0, place).find((each) => each.at >= (readings[place]?.at ?? 0) - WHILE) ?? null;

/** Read /metrics while the page is looked at. */
function useReadings() {
  const [readings, setReadings] = useState<readonly Reading[]>([]);
  const read = async () => {
    const text = await (await request("/metrics", { headers: { accept: "text/plain" } })).text();
    setReadings((old) => [...old.slice(1 - KEPT), parse(text, Date.now() / 1000)]);
  };
  const { error, reload } = useLoaded(read, [], EVERY);
  return { readings, error, retry: reload };
}

function figuresOf(now: Reading, before: Reading | null): Figure[] {
  const of = (name: string, labels?: Record<string, string>) => sum(now, name, labels);
  const runs = (status: string) => of("drsai_runs", { status });
  const expired = of("drsai_leases", { state: "expired" });
  const failed = of("drsai_jobs", { state: "failed" });
  const oldest = (name: string) => (of(name) > 0 ? t("ops.oldest", { time: duration(of(name)) }) : "");
  const counted = (name: string) => ({ value: count(of(name)), more: t("ops.lately", { n: count(before ? growth(before, now, name) : 0) }) });
  const stalls = (reading: Reading) => sum(reading, "drsai_loop_lag_seconds_count") - sum(reading, "drsai_loop_lag_seconds_bucket", { le: "1.0" });
  const within = (name: string, part: number) => {
    const found = quantile(null, now, name, part);
    return found === null ? "–" : duration(found);
  };
  const slow = (name: string) => ({ value: within(name, 0.5), more: t("ops.p95", { time: within(name, 0.95) }) });
  return [
    { name: t("ops.running"), value: count(runs("running")), more: t("ops.waiting", { waiting: count(runs("awaiting_input")), paused: count(runs("paused")) }) },
    { name: t("ops.workers"), value: count(of("drsai_workers")), bad: of("drsai_workers") === 0 },
    { name: t("ops.leases"), value: count(of("drsai_leases", { state: "held" })), more: t("ops.expired", { n: count(expired) }), bad: expired > 0 },
    { name: t("ops.queue"), value: count(of("drsai_queued_inputs")), more: oldest("drsai_queued_oldest_seconds") },
    { name: t("ops.jobs"), value: count(of("drsai_jobs", { state: "due" })), more: [oldest("drsai_jobs_oldest_seconds"), t("kn.failures", { n: count(failed) })].filter(Boolean).join(" · "), bad: failed > 0 },
    { name: t("ops.hooks"), value: count(of("drsai_webhooks_waiting")), more: oldest("drsai_webhooks_oldest_seconds") },
    { name: t("ops.recoveries"), ...counted("drsai_recoveries_total") },
    { name: t("ops.requests"), ...counted("drsai_requests_total") },
    { name: t("ops.firstToken"), ...slow("drsai_first_token_seconds") },
    { name: t("ops.turn"), ...slow("drsai_turn_seconds") },
    { name: t("ops.modelErrors"), ...counted("drsai_model_errors_total") },
    { name: t("ops.stalls"), value: count(stalls(now)), more: t("ops.lately", { n: count(before ? Math.max(0, stalls(now) - stalls(before)) : 0) }), bad: stalls(now) > 0 },
  ];
}

function Plots({ readings }: { readings: readonly Reading[] }) {
  const times = useMemo(() => readings.map((each) => each.at), [readings]);
  const plots = useMemo(() => {
    type Labels = Record<string, string>;
    const now = (color: Line["color"], name: string, metric: string, labels?: Labels): Line => ({ name, color, values: readings.map((each) => sum(each, metric, labels)) });
    const olds = readings.map((_, place) => firstOf(readings, place));
    /** What is made of each reading and the one that was a while before it. */
    const since = (of: (old: Reading, each: Reading) => number | null) =>
      readings.map((each, place) => {
        const old = olds[place];
        return old ? of(old, each) : null;
      });
    const rate = (color: Line["color"], name: string, metric: string, labels?: Labels): Line => ({ name, color, values: since((old, each) => growth(old, each, metric, labels) / (each.at - old.at)) });
    const slow = (color: Line["color"], name: string, metric: string, of: number): Line => ({ name, color, values: since((old, each) => quantile(old, each, metric, of)) });
    const both = (metric: string) => [slow("accent", "p50", metric, 0.5), slow("warn", "p95", metric, 0.95)];
    const each = (value: number) => (value >= 100 || Number.isInteger(value) ? count(value) : value.toFixed(2));
    return [
      { title: t("ops.runs"), show: each, lines: [now("live", t("status.running"), "drsai_runs", { status: "running" }), now("warn", t("status.awaiting_input"), "drsai_runs", { status: "awaiting_input" }), now("accent", t("ops.queue"), "drsai_queued_inputs")] },
      { title: t("ops.requestRate"), show: each, lines: [rate("accent", t("ops.allOfThem"), "drsai_requests_total"), rate("bad", "5xx", "drsai_requests_total", { status: "5xx" })] },
      { title: t("ops.modelRate"), show: each, lines: [rate("accent", t("ops.allOfThem"), "drsai_model_calls_total"), rate("bad", t("ops.modelErrors"), "drsai_model_errors_total")] },
      { title: t("ops.firstToken"), show: duration, lines: both("drsai_first_token_seconds") },
      { title: t("ops.turn"), show: duration, lines: both("drsai_turn_seconds") },
      { title: t("ops.lag"), show: duration, lines: [...both("drsai_loop_lag_seconds"), slow("live", t("ops.database"), "drsai_database_seconds", 0.95)] },
    ];
  }, [readings]);
  return (
    <div class="plots">
      {plots.map((each) => (
        <Plot key={each.title} times={times} {...each} />
      ))}
    </div>
  );
}

function Counted() {
  const { readings, error, retry } = useReadings();
  const now = readings.at(-1);
  if (error instanceof ApiError && error.status === 404) return <Empty title={t("ops.off")}>{t("ops.offHow")}</Empty>;
  if (!now) return error === null ? <Loading lines={6} /> : <Problem error={error} retry={retry} />;
  return (
    <>
      {error !== null && <Problem error={error} retry={retry} />}
      {sum(now, "drsai_database_up") === 0 && <Problem error={new Error(t("ops.databaseDown"))} />}
      <Figures of={figuresOf(now, firstOf(readings, readings.length - 1))} />
      <p class="quiet">
        {t("ops.counted")} <Time at={now.at} />
      </p>
      <Plots readings={readings} />
    </>
  );
}

export default function Overview() {
  return (
    <div class="scroll">
      {may("metrics:read") ? <Counted /> : <Empty title={t("ops.noMetrics")}>{t("ops.noMetricsHow")}</Empty>}
      {may("runs:admin") && <Live />}
    </div>
  );
}

const SHOWN = 20;

const columns = (): Column<AnyRun>[] => [
  { head: t("is.run"), cell: (run) => <a href={to(["runs", run.run_id])}>{run.run_id}</a>, width: "2fr" },
  { head: t("is.team"), cell: (run) => run.team },
  { head: t("is.user"), cell: (run) => <bdi>{run.user}</bdi> },
  { head: t("is.status"), cell: (run) => <Status status={run.status} />, width: "9rem" },
  { head: t("ops.lasts"), cell: (run) => <Lasting from={run.started_at ?? run.created_at} until={run.finished_at} />, width: "6rem" },
  { head: t("ops.worker"), cell: (run) => run.worker ?? "–", wide: true },
  { head: t("is.attempt"), cell: (run) => run.attempt, width: "5rem", numeric: true, wide: true },
];

const UNDER_WAY = ["running", "created"] as const;

async function live() {
  const pages = await Promise.all(UNDER_WAY.map((status) => data(api.GET("/v1/admin/runs", { params: { query: { status, limit: SHOWN } } }))));
  return { data: pages.flatMap((page): AnyRun[] => page.data), has_more: false, next: null };
}

function Live() {
  const listing = useListing(live, [], 5);
  const cut = UNDER_WAY.filter((status) => listing.rows.filter((run) => run.status === status).length >= SHOWN);
  return (
    <>
      <section class="card live-runs" aria-label={t("ops.live")}>
        <h2>{t("ops.live")}</h2>
        <Table label={t("ops.live")} columns={columns()} listing={listing} empty={t("ops.nothingRuns")} />
        {cut.map((status) => (
          <p key={status}>
            {t("ops.newestOf", { n: SHOWN, status: t(`status.${status}`) })} <a href={to(["runs"], { status })}>{t("ops.seeAll")}</a>
          </p>
        ))}
      </section>
      <section class="card live-runs" aria-label={t("ops.failures")}>
        <h2>{t("ops.failures")}</h2>
        <Failures label={t("ops.failures")} hours="24" />
      </section>
    </>
  );
}
