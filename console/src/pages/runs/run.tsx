/** One run: how it stands, what can be done with it, and all that it did. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, api, data } from "../../api/client";
import type { AnyRun, Run } from "../../api/shapes";
import { query, to } from "../../route";
import { may } from "../../session";
import { Button, CopyButton, Tabs } from "../../ui/controls";
import { useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Empty, Loading, Problem } from "../../ui/state";
import { tell } from "../../ui/toast";
import { count, duration, Lasting, money, Status, Time } from "../../ui/values";
import { t } from "../../words";
import { Branches } from "./branches";
import { Calls } from "./calls";
import { Events } from "./events";
import { Facts } from "./inspector";
import { useLog } from "./log";
import { Messages } from "./messages";
import { type Past, pastOf } from "./past";
import { can, isLive, isOver, mayDo, rowOf, steer, VERBS } from "./rows";
import { Again, States } from "./state";
import { Waterfall } from "./waterfall";

/** A run as its owner sees it, and as an operator does; null: it is not theirs to see so. */
interface Shown {
  own: Run | null;
  any: AnyRun | null;
}

function missing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null;
  throw error;
}

async function load(id: string): Promise<Shown> {
  const params = { params: { path: { run_id: id } } };
  const asked = data(api.GET("/v1/runs/{run_id}", params));
  const [own, any] = await Promise.all([asked.catch(missing), may("runs:admin") ? data(api.GET("/v1/admin/runs/{run_id}", params)).catch(missing) : null]);
  if (!own && !any) await asked;
  return { own, any };
}

/** What a run has cost; null: its calls have no price. */
function useCost(id: string, calls: number | null): string | null {
  const ask = async () => (await data(api.GET("/v1/usage", { params: { query: { run: id, group_by: "run" } } }))).data[0] ?? null;
  const { value } = useLoaded(ask, [id, calls]);
  return value && value.cost !== null ? money(value.cost, value.currency) : null;
}

function Head({ shown }: { shown: Shown }) {
  const run = shown.own ?? shown.any;
  const cost = useCost(run?.run_id ?? "", run?.usage?.["total_tokens"] ?? null);
  if (!run) return null;
  const row = rowOf(shown.any ?? run);
  const thread = shown.own ? <a href={to(["chat", run.thread_id])}>{run.thread_id}</a> : run.thread_id;
  const usage = run.usage;
  return (
    <Facts
      of={[
        [t("runs.by.status"), <Status key="status" status={run.status} />],
        [t("runs.by.user"), row.user && <bdi>{row.user}</bdi>],
        [t("runs.by.thread"), <bdi key="thread">{thread}</bdi>],
        [t("runs.created"), <Time key="created" at={run.created_at} />],
        [t("runs.duration"), row.since === null ? duration(row.seconds) : <Lasting key="lasting" from={row.since} until={null} />],
        [t("runs.attempt"), row.attempt],
        [t("runs.turns"), row.turns],
        [t("runs.tokens"), usage ? t("runs.inOut", { in: count(usage["prompt_tokens"]), out: count(usage["completion_tokens"]) }) : null],
        [t("runs.cost"), cost],
        [t("runs.worker"), shown.any?.worker],
        [t("runs.stopReason"), shown.own?.stop_reason ?? run.stop_code],
        [t("runs.behind"), shown.own?.queued_behind && <a href={to(["runs", shown.own.queued_behind])}>{shown.own.queued_behind}</a>],
        [t("runs.joined"), shown.own?.joined && <a href={to(["runs", shown.own.joined])}>{shown.own.joined}</a>],
      ]}
    />
  );
}

const TABS = ["timeline", "events", "calls", "messages", "state", "branches"] as const;
type Tab = (typeof TABS)[number];
const NO_PAST: Past = { turns: [], before: 0 };
const PAUSE = 3;

/** What is shown of the log, which is followed as long as one of these is. */
function Watched({ run, tab, live, past }: { run: Run; tab: Tab; live: boolean; past: Past }) {
  const log = useLog(run.run_id, live);
  if (log.error !== null) return <Problem error={log.error} />;
  return tab === "events" ? <Events log={log} live={live} /> : <Waterfall run={run} log={log} live={live} turns={past.turns} />;
}

function Inside({ run }: { run: Run }) {
  const live = isLive(run.status);
  const asked = query.value.get("tab");
  const tab = TABS.find((each) => each === asked) ?? "timeline";
  const past = useLoaded(() => pastOf(run), [run.run_id, live, run.turns]);
  const tabs = TABS.map((each) => ({ href: to(["runs", run.run_id], { tab: each }), text: t(`runs.tab.${each}`), current: each === tab }));
  return (
    <>
      <Tabs label={t("runs.run")} tabs={tabs} />
      {past.error !== null && tab === "state" && <Problem error={past.error} retry={past.reload} />}
      {(tab === "timeline" || tab === "events") && <Watched run={run} tab={tab} live={live} past={past.value ?? NO_PAST} />}
      {tab === "calls" && <Calls run={run} live={live} />}
      {tab === "messages" && <Messages run={run} live={live} />}
      {tab === "state" && (past.value ? <States run={run} past={past.value} live={live} /> : past.error === null && <Loading />)}
      {tab === "branches" && <Branches run={run} />}
    </>
  );
}

export function OneRun({ id }: { id: string }) {
  const [over, setOver] = useState(false);
  const { value, error, reload } = useLoaded(() => load(id), [id], over ? 0 : PAUSE);
  const run = value?.own ?? value?.any;
  useEffect(() => setOver(run !== undefined && run !== null && isOver(run.status)), [run?.status]);
  const verbs = run ? VERBS.filter((verb) => can(verb, run.status) && mayDo(verb)) : [];
  return (
    <div class="page run">
      <PageHead title={run ? run.team : t("runs.run")}>
        <code>{id}</code>
        <CopyButton text={id} />
        {run &&
          verbs.map((verb) => (
            <Button key={verb} kind={verb === "cancel" ? "danger" : "plain"} onClick={() => steer(verb, rowOf(run)).then(() => (tell(t(`runs.told.${verb}`)), reload()))}>
              {t(`runs.do.${verb}`)}
            </Button>
          ))}
        {value?.own && !isLive(value.own.status) && <Again run={value.own} />}
      </PageHead>
      {error !== null && <Problem error={error} retry={reload} />}
      {!value && error === null && <Loading lines={8} />}
      {value && run && (
        <>
          <Head shown={value} />
          {run.error_message && (
            <p class="problem run-error" role="region" aria-label={t("runs.reason")} tabIndex={0}>
              {run.error_message}
            </p>
          )}
          {value.own ? <Inside run={value.own} /> : <Empty title={t("runs.notYours")}>{t("runs.notYoursHow")}</Empty>}
        </>
      )}
    </div>
  );
}
