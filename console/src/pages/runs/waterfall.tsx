/** The time line of a run: what happened when, how long it took, and what has failed. */
import { useMemo } from "preact/hooks";
import { ApiError, api, data, type Run, type Turn } from "../../api";
import { chosen, search, to } from "../../route";
import { Button, clock, count, duration, Facts, Json, now, optionsOf, Problem, SearchSelect, useLoaded } from "../../ui";
import { t, wordFor } from "../../words";
import { Inspector } from "./inspector";
import { type Log, useCalls } from "./log";
import { type Bar, type Kind, scaleOf, timelineOf } from "./timeline";

const KINDS = ["turn", "model", "tool", "said", "thought", "error"] as const satisfies readonly Kind[];

function nameOf(bar: Bar): string {
  if (bar.kind === "attempt") return bar.name ? t("runs.attemptN", { n: bar.name }) : t("runs.taken");
  if (bar.kind === "turn") return t("runs.turnN", { n: bar.name });
  if (bar.kind === "end") return wordFor(`status.${bar.name}`, bar.name);
  if (bar.kind === "model" || bar.kind === "tool") return bar.name;
  return bar.text.slice(0, 200);
}

const lasts = (bar: Bar) => bar.until === null || bar.until > bar.from;

function Row({ bar, scale, end }: { bar: Bar; scale: (at: number) => number; end: number }) {
  const [from, until] = [scale(bar.from), scale(bar.until ?? end)];
  const state = `${bar.failed ? "failed" : ""} ${bar.lost ? "lost" : ""} ${bar.until === null ? "open" : ""}`;
  return (
    <>
      <span class="bar-name">
        <span class={`kind ${bar.failed ? "error" : bar.kind}`}>{bar.failed && bar.kind !== "error" ? `${t(`runs.kind.${bar.kind}`)} ✕` : t(`runs.kind.${bar.kind}`)}</span> <bdi>{nameOf(bar)}</bdi> {bar.kind !== "turn" && <bdi class="quiet">{bar.agent}</bdi>}
      </span>
      <span class="lane">
        <span class={`bar ${bar.kind} ${state}`} style={{ left: `${from * 100}%`, width: `${Math.max(0, until - from) * 100}%` }} />
      </span>
      <span class="numeric">{lasts(bar) ? duration(Math.max(0, (bar.until ?? end) - bar.from) / 1000) : ""}</span>
    </>
  );
}

function Detail({ bar, run }: { bar: Bar; run: Run }) {
  return (
    <div class="stack">
      <h2>
        {t(`runs.kind.${bar.kind}`)} <bdi>{bar.kind === "input" || bar.kind === "said" || bar.kind === "thought" ? bar.agent : nameOf(bar)}</bdi>
      </h2>
      {bar.lost && <p class="quiet">{t("runs.lost")}</p>}
      <Facts
        class="fact-line"
        of={[
          [t("is.agent"), bar.agent],
          [t("runs.began"), clock(bar.from)],
          [t("runs.duration"), lasts(bar) ? duration(((bar.until ?? Date.now()) - bar.from) / 1000) : null],
          [t("is.tokens"), bar.tokens && t("runs.inOut", { in: count(bar.tokens[0]), out: count(bar.tokens[1]) })],
          [t("runs.turn"), bar.turn],
        ]}
      />
      {bar.text && bar.kind !== "tool" && <pre class="wrap">{bar.text}</pre>}
      {bar.kind === "model" && <a href={to(["runs", run.run_id], { tab: "calls", at: bar.id.slice("call ".length) })}>{t("runs.whatSent")}</a>}
      {bar.kind === "turn" && <a href={to(["runs", run.run_id], { tab: "state", at: bar.name })}>{t("runs.stateOf")}</a>}
      <Json value={bar.detail} depth={3} />
    </div>
  );
}

const PAUSE = 3;

/** What the newest steps say of a turn in flight, whichever worker runs it. */
function useSteps(run: Run, live: boolean) {
  const path = { run_id: run.run_id };
  const load = async () => (live ? (await data(api.GET("/v1/runs/{run_id}/steps", { params: { path, query: { order: "desc", limit: 20 } } }))).data : []);
  return useLoaded(load, [run.run_id, live], live ? PAUSE : 0).value ?? [];
}

export function Waterfall({ run, log, live, turns }: { run: Run; log: Log; live: boolean; turns: readonly Turn[] }) {
  const { value: calls, error } = useCalls(run.run_id, live);
  const steps = useSteps(run, live);
  const bars = useMemo(() => timelineOf(run, log.heard, calls ?? [], steps, turns), [run.run_id, log.heard, calls, steps, turns]);
  const end = live ? Math.max(now.value * 1000, bars.at(-1)?.from ?? 0) : Math.max(...bars.slice(-500).map((each) => each.until ?? each.from), 0);
  const scale = useMemo(() => scaleOf(bars, end), [bars, end]);
  const kind = chosen("kind", KINDS);
  const shown = useMemo(() => (kind ? bars.filter((each) => each.kind === kind || (kind === "error" && each.failed)) : bars), [bars, kind]);
  const failed = bars.find((each) => each.failed);
  const failures = bars.filter((each) => each.failed).length;
  return (
    <>
      <div class="filters">
        <SearchSelect label={t("runs.show")} name="kind" options={optionsOf(KINDS, (each) => t(`runs.kinds.${each}`))} any={t("is.all")} />
        {failed && (
          <Button onClick={() => search({ kind: null, at: failed.id })}>
            {t("runs.firstError")} ({count(failures)})
          </Button>
        )}
        <span class="quiet">{t("of.rows", { n: count(shown.length) })}</span>
      </div>
      {error !== null && !(error instanceof ApiError && error.status === 404) && <Problem error={error} />}
      <Inspector
        label={t("runs.tab.timeline")}
        class="waterfall"
        rows={shown}
        idOf={(bar) => bar.id}
        live={live}
        empty={live ? t("runs.beginsSoon") : t("runs.nothingHappened")}
        row={(bar) => <Row bar={bar} scale={scale} end={end} />}
        detail={(bar) => <Detail bar={bar} run={run} />}
      />
    </>
  );
}
