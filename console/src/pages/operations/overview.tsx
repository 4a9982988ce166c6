/** How things stand: figures and plots of what the server counts, and what runs. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, root, send } from "../../api/client";
import { may } from "../../session";
import { Empty, Loading, Problem } from "../../ui/state";
import { count, duration, Time } from "../../ui/values";
import { t } from "../../words";
import { Failures, LiveRuns } from "./live";
import { Plot, type Line } from "./plot";
import { growth, parse, quantile, sum, type Reading } from "./prometheus";

const EVERY = 5000;
/** An hour of readings. */
const KEPT = 720;
/** What is told of the last while is of so many readings: a minute. */
const WHILE = 12;

/** Read /metrics while the page is looked at. */
function useReadings() {
  const [readings, setReadings] = useState<readonly Reading[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    const over = new AbortController();
    const read = async () => {
      if (document.hidden) return;
      try {
        const text = await (await send(new Request(`${root}/metrics`, { signal: over.signal, headers: { accept: "text/plain" } }))).text();
        setReadings((old) => [...old.slice(1 - KEPT), parse(text, Date.now() / 1000)]);
        setError(null);
      } catch (failed) {
        if (!over.signal.aborted) setError(failed);
      }
    };
    void read();
    const timer = setInterval(() => void read(), EVERY);
    return () => (clearInterval(timer), over.abort());
  }, [tries]);
  return { readings, error, retry: () => setTries((old) => old + 1) };
}

function Figure({ name, value, more, bad = false }: { name: string; value: string; more?: ComponentChildren; bad?: boolean }) {
  return (
    <div class="card">
      <dt class="quiet">{name}</dt>
      <dd class={bad ? "figure bad" : "figure"}>{value}</dd>
      {more && <dd class="quiet">{more}</dd>}
    </div>
  );
}

function Figures({ now, before }: { now: Reading; before: Reading | null }) {
  const runs = (status: string) => sum(now, "drsai_runs", { status });
  const expired = sum(now, "drsai_leases", { state: "expired" });
  const jobs = (state: string) => sum(now, "drsai_jobs", { state });
  const oldest = (name: string) => (sum(now, name) > 0 ? t("ops.oldest", { time: duration(sum(now, name)) }) : "");
  const lately = (name: string, labels?: Record<string, string>) => t("ops.lately", { n: count(before ? growth(before, now, name, labels) : 0) });
  const stalls = (reading: Reading) => sum(reading, "drsai_loop_lag_seconds_count") - sum(reading, "drsai_loop_lag_seconds_bucket", { le: "1.0" });
  const slow = (name: string) => {
    const [half, most] = [0.5, 0.95].map((of) => quantile(null, now, name, of));
    return { value: typeof half === "number" ? duration(half) : "–", more: t("ops.p95", { time: typeof most === "number" ? duration(most) : "–" }) };
  };
  return (
    <dl class="cards figures">
      <Figure name={t("ops.running")} value={count(runs("running"))} more={t("ops.waiting", { waiting: count(runs("awaiting_input")), paused: count(runs("paused")) })} />
      <Figure name={t("ops.workers")} value={count(sum(now, "drsai_workers"))} bad={sum(now, "drsai_workers") === 0} />
      <Figure name={t("ops.leases")} value={count(sum(now, "drsai_leases", { state: "held" }))} more={t("ops.expired", { n: count(expired) })} bad={expired > 0} />
      <Figure name={t("ops.queue")} value={count(sum(now, "drsai_queued_inputs"))} more={oldest("drsai_queued_oldest_seconds")} />
      <Figure name={t("ops.jobs")} value={count(jobs("due"))} more={[oldest("drsai_jobs_oldest_seconds"), t("kn.failures", { n: count(jobs("failed")) })].filter(Boolean).join(" · ")} bad={jobs("failed") > 0} />
      <Figure name={t("ops.hooks")} value={count(sum(now, "drsai_webhooks_waiting"))} more={oldest("drsai_webhooks_oldest_seconds")} />
      <Figure name={t("ops.recoveries")} value={count(sum(now, "drsai_recoveries_total"))} more={lately("drsai_recoveries_total")} />
      <Figure name={t("ops.requests")} value={count(sum(now, "drsai_requests_total"))} more={lately("drsai_requests_total")} />
      <Figure name={t("ops.firstToken")} {...slow("drsai_first_token_seconds")} />
      <Figure name={t("ops.turn")} {...slow("drsai_turn_seconds")} />
      <Figure name={t("ops.modelErrors")} value={count(sum(now, "drsai_model_errors_total"))} more={lately("drsai_model_errors_total")} />
      <Figure name={t("ops.stalls")} value={count(stalls(now))} more={t("ops.lately", { n: count(before ? Math.max(0, stalls(now) - stalls(before)) : 0) })} bad={stalls(now) > 0} />
    </dl>
  );
}

function Plots({ readings }: { readings: readonly Reading[] }) {
  const times = useMemo(() => readings.map((each) => each.at), [readings]);
  const plots = useMemo(() => {
    const now = (color: Line["color"], name: string, metric: string, labels?: Record<string, string>): Line => ({ name, color, values: readings.map((each) => sum(each, metric, labels)) });
    const rate = (color: Line["color"], name: string, metric: string, labels?: Record<string, string>): Line => ({
      name,
      color,
      values: readings.map((each, n) => {
        const old = readings[Math.max(0, n - WHILE)];
        return n === 0 || !old ? null : growth(old, each, metric, labels) / (each.at - old.at);
      }),
    });
    const slow = (color: Line["color"], name: string, metric: string, of: number): Line => ({ name, color, values: readings.map((each, n) => (n === 0 ? null : quantile(readings[Math.max(0, n - WHILE)] ?? null, each, metric, of))) });
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
  const isOff = error instanceof ApiError && error.status === 404;
  if (isOff)
    return (
      <Empty title={t("ops.off")}>
        <p>{t("ops.offHow")}</p>
      </Empty>
    );
  if (!now) return error === null ? <Loading lines={6} /> : <Problem error={error} retry={retry} />;
  return (
    <>
      {error !== null && <Problem error={error} retry={retry} />}
      {sum(now, "drsai_database_up") === 0 && <Problem error={new Error(t("ops.databaseDown"))} />}
      <Figures now={now} before={readings.at(-1 - WHILE) ?? (readings.length > 1 ? (readings[0] ?? null) : null)} />
      <p class="quiet">
        {t("ops.counted")} <Time at={now.at} />
      </p>
      <Plots readings={readings} />
    </>
  );
}

export function Overview() {
  return (
    <div class="scroll">
      {may("metrics:read") ? (
        <Counted />
      ) : (
        <Empty title={t("ops.noMetrics")}>
          <p>{t("ops.noMetricsHow")}</p>
        </Empty>
      )}
      {may("runs:admin") && (
        <>
          <LiveRuns />
          <Failures />
        </>
      )}
    </div>
  );
}
