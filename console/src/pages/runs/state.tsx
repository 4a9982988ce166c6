/** What agents remembered before and after each turn, and what can be begun from there. */
import { useState } from "preact/hooks";
import { ApiError, api, data, post } from "../../api/client";
import type { Message, Run, Thread, Turn } from "../../api/shapes";
import { go, to } from "../../route";
import { may } from "../../session";
import { Button, Dialog } from "../../ui/controls";
import { Json } from "../../ui/json";
import { useLoaded } from "../../ui/load";
import { Loading, Problem } from "../../ui/state";
import { tell } from "../../ui/toast";
import { Time } from "../../ui/values";
import { t } from "../../words";
import { DataDiff } from "./diff";
import { Inspector } from "./inspector";
import { branchOf, messagesOf, type Past } from "./past";

interface Place {
  turn?: number;
  at?: number;
}

const threadPath = (run: Run, verb: string) => `/v1/threads/${encodeURIComponent(run.thread_id)}/${verb}`;

async function fork(run: Run, place: Place): Promise<string> {
  return ((await (await post(threadPath(run, "fork"), place)).json()) as Thread).thread_id;
}

/** The one text that a run was asked; null: it was something else, such as a file, and cannot be sent from here. */
function askedOf(run: Run, messages: readonly Message[]): string | null {
  const asked = messages.filter((each) => each.run_id === run.run_id && each.source === "user" && each.type === "TextMessage");
  const [first, second] = asked;
  return first && !second && first.seq === run.first_seq && !first.files?.length ? first.content : null;
}

/** Ask the same again, on a copy of the thread as it was before: the run and its thread stay as they are. */
async function again(run: Run): Promise<void> {
  const first = run.first_seq ?? 0;
  const { data: messages } = await messagesOf(run.thread_id, await branchOf(run), Math.max(0, first - 1));
  const asked = askedOf(run, messages);
  if (asked === null) throw new Error(t("runs.cannotAgain"));
  const thread = await fork(run, { at: first });
  const body = { model: run.team, thread_id: thread, background: true, messages: [{ role: "user", content: asked }] };
  const made = await post("/v1/chat/completions", body);
  const id = made.headers.get("x-run-id");
  if (id) go(to(["runs", id]));
}

/** The whole run can be done again, or undone. */
export function Again({ run }: { run: Run }) {
  const [asks, setAsks] = useState(false);
  if (!may("threads:write") || !run.first_seq) return null;
  return (
    <>
      {may("chat") && <Button onClick={() => again(run)}>{t("runs.again")}</Button>}
      <Button onClick={() => setAsks(true)}>{t("runs.undo")}</Button>
      {asks && <Rewind run={run} place={{ at: run.first_seq }} onClose={() => setAsks(false)} />}
    </>
  );
}

function Rewind({ run, place, onClose }: { run: Run; place: Place; onClose: () => void }) {
  const rewind = async () => {
    await post(threadPath(run, "rewind"), place);
    tell(t("runs.rewound"));
    onClose();
    go(to(["runs", run.run_id], { tab: "branches" }));
  };
  return (
    <Dialog title={t("runs.goBack")} onClose={onClose}>
      <div class="stack">
        <p>{t("runs.rewindHow")}</p>
        <p>
          <Button kind="primary" onClick={rewind}>
            {t("runs.goBack")}
          </Button>
        </p>
      </div>
    </Dialog>
  );
}

async function stateAt(run: Run, turn: number): Promise<unknown> {
  if (turn === 0) return null;
  const made = await data(api.GET("/v1/threads/{thread_id}/state", { params: { path: { thread_id: run.thread_id }, query: { turn } } }));
  if (made.state === null && made.reason) throw new ApiError(made.reason, 200);
  return made.state;
}

function Detail({ run, turn, before }: { run: Run; turn: Turn; before: number }) {
  const [whole, setWhole] = useState(false);
  const [asks, setAsks] = useState(false);
  const load = async () => await Promise.all([stateAt(run, before), stateAt(run, turn.turn)]);
  const { value, error, reload } = useLoaded(load, [run.run_id, turn.turn, before]);
  const begin = async () => {
    const thread = await fork(run, { turn: turn.turn });
    tell(t("runs.forked", { thread }));
    go(to(["chat", thread]));
  };
  return (
    <div class="stack">
      <h2>{t("runs.turnN", { n: turn.turn })}</h2>
      <div class="filters">
        <Button pressed={whole} onClick={() => setWhole(!whole)}>
          {t("runs.wholeState")}
        </Button>
        {may("threads:write") && <Button onClick={begin}>{t("runs.fork")}</Button>}
        {may("threads:write") && <Button onClick={() => setAsks(true)}>{t("runs.goBack")}</Button>}
      </div>
      {error !== null && <Problem error={error} retry={reload} />}
      {!value && error === null && <Loading />}
      {value && (whole ? <Json value={value[1]} depth={4} /> : <DataDiff before={value[0]} after={value[1]} label={t("runs.tab.state")} />)}
      {asks && <Rewind run={run} place={{ turn: turn.turn }} onClose={() => setAsks(false)} />}
    </div>
  );
}

export function States({ run, past, live }: { run: Run; past: Past; live: boolean }) {
  const before = new Map(past.turns.map((each, n) => [each.turn, past.turns[n - 1]?.turn ?? past.before]));
  return (
    <Inspector
      label={t("runs.tab.state")}
      class="turns"
      rows={past.turns}
      idOf={(turn) => String(turn.turn)}
      live={live}
      empty={t("runs.noTurns")}
      row={(turn) => (
        <>
          <span>{t("runs.turnN", { n: turn.turn })}</span>
          <bdi class="quiet">{turn.source ?? ""}</bdi>
          <span class="quiet">{turn.last_seq >= turn.first_seq ? t("runs.seqs", { from: turn.first_seq, to: turn.last_seq }) : ""}</span>
          <Time at={turn.created_at} />
        </>
      )}
      detail={(turn) => <Detail key={turn.turn} run={run} turn={turn} before={before.get(turn.turn) ?? 0} />}
    />
  );
}
