/** One run: how it stands, what can be done with it, and all that it did. */
import { useEffect, useState } from "preact/hooks";
import { api, data, type AnyRun, type Run } from "../../api";
import { chosen, to } from "../../route";
import { may } from "../../session";
import { Button, CopyButton, count, duration, Empty, Facts, Lasting, money, PageHead, Problem, Show, Status, Tabs, tell, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { Branches } from "./branches";
import { Calls } from "./calls";
import { Events, Messages } from "./events";
import { useLog } from "./log";
import { missing, type Past, pastOf } from "./past";
import { can, isLive, isOver, mayDo, ownerOf, rowOf, steer, VERBS, type Verb } from "./rows";
import { Again, States } from "./state";
import { Waterfall } from "./waterfall";

/** A run as its owner sees it, and as an operator does; null: it is not theirs to see so. */
async function load(id: string) {
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

function Head({ shown }: { shown: Awaited<ReturnType<typeof load>> }) {
  const run = shown.own ?? shown.any;
  const cost = useCost(run?.run_id ?? "", run?.usage?.["total_tokens"] ?? null);
  if (!run) return null;
  const row = rowOf(shown.any ?? run);
  const thread = shown.own && may("chat") ? <a href={to(["chat", run.thread_id])}>{run.thread_id}</a> : run.thread_id;
  const usage = run.usage;
  return (
    <Facts
      class="fact-line"
      of={[
        [t("is.status"), <Status status={run.status} />],
        [t("is.user"), ownerOf(row) && <bdi>{ownerOf(row)}</bdi>],
        [t("is.thread"), <bdi>{thread}</bdi>],
        [t("runs.created"), <Time at={run.created_at} />],
        [t("runs.duration"), row.since === null ? duration(row.seconds) : <Lasting from={row.since} until={null} />],
        [t("is.attempt"), row.attempt],
        [t("runs.kinds.turn"), row.turns],
        [t("is.tokens"), usage ? t("runs.inOut", { in: count(usage["prompt_tokens"]), out: count(usage["completion_tokens"]) }) : null],
        [t("is.cost"), cost],
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
  const tab = chosen("tab", TABS) ?? "timeline";
  const past = useLoaded(() => pastOf(run), [run.run_id, live, run.turns]);
  const tabs = TABS.map((each) => ({ href: to(["runs", run.run_id], { tab: each }), text: t(`runs.tab.${each}`), current: each === tab }));
  return (
    <>
      <Tabs label={t("is.run")} tabs={tabs} />
      {(tab === "timeline" || tab === "events") && <Watched run={run} tab={tab} live={live} past={past.value ?? NO_PAST} />}
      {tab === "calls" && <Calls run={run} live={live} />}
      {tab === "messages" && <Messages run={run} live={live} />}
      {tab === "state" && <Show of={past}>{(value) => <States run={run} past={value} live={live} />}</Show>}
      {tab === "branches" && <Branches run={run} />}
    </>
  );
}

/** What can be done with a run. */
function Acts({ run, reload }: { run: Run | AnyRun; reload: () => void }) {
  const act = async (verb: Verb) => {
    await steer(verb, run);
    tell(t(`runs.told.${verb}`));
    reload();
  };
  return (
    <>
      {VERBS.filter((verb) => can(verb, run.status) && mayDo(verb)).map((verb) => (
        <Button key={verb} kind={verb === "cancel" ? "danger" : "plain"} onClick={() => act(verb)}>
          {t(`runs.do.${verb}`)}
        </Button>
      ))}
    </>
  );
}

export function OneRun({ id }: { id: string }) {
  const [over, setOver] = useState(false);
  const loaded = useLoaded(() => load(id), [id], over ? 0 : PAUSE);
  const { own, any } = loaded.value ?? {};
  const run = own ?? any;
  useEffect(() => setOver(!!run && isOver(run.status)), [run?.status]);
  return (
    <div class="page run">
      <PageHead title={run ? run.team : t("is.run")}>
        <code>{id}</code>
        <CopyButton text={id} />
        {run && <Acts run={run} reload={loaded.reload} />}
        {own && !isLive(own.status) && <Again run={own} />}
      </PageHead>
      <Show of={loaded} lines={8}>
        {(shown) => (
          <>
            <Head shown={shown} />
            {run?.error_message && (
              <p class="problem run-error" role="region" aria-label={t("runs.reason")} tabIndex={0}>
                {run.error_message}
              </p>
            )}
            {own ? <Inside run={own} /> : <Empty title={t("runs.notYours")}>{t("runs.notYoursHow")}</Empty>}
          </>
        )}
      </Show>
    </div>
  );
}
