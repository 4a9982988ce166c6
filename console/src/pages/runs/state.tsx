/** What agents remembered before and after each turn, and what can be begun from there. */
import { useState } from "preact/hooks";
import { ApiError, api, data, post, type Message, type Run, type Turn } from "../../api";
import { go, to } from "../../route";
import { may } from "../../session";
import { Button, FormButton, Json, Show, tell, Time, useLoaded } from "../../ui";
import { Diff } from "../../ui/diff";
import { t } from "../../words";
import { ask, fork, newKey, pathOf, type Place } from "../chat/send";
import { messagesOf } from "../chat/branches";
import { Inspector } from "./inspector";
import { branchOf, threadOf, type Past } from "./past";

/** The one text that a run was asked; null: it was something else, such as a file, and cannot be sent from here. */
function askedOf(run: Run, messages: readonly Message[]): string | null {
  const asked = messages.filter((each) => each.run_id === run.run_id && each.source === "user" && each.type === "TextMessage");
  const [first, second] = asked;
  return first && !second && first.seq === run.first_seq && !first.files?.length ? first.content : null;
}

/** Ask the same again, on a copy of the thread as it was before: the run and its thread stay as they are. */
async function again(run: Run): Promise<void> {
  const { data: messages } = await messagesOf(threadOf(run), await branchOf(run), Math.max(0, run.first_seq - 1));
  const asked = askedOf(run, messages);
  if (asked === null) throw new Error(t("runs.cannotAgain"));
  const thread = await fork(threadOf(run), { at: run.first_seq });
  const made = await ask(run.team, asked, newKey(), { id: thread, owner: null });
  go(to(["runs", made.run_id]));
}

/** Goes back in the thread, once one has read what that does. */
function Rewind({ run, place, text = t("runs.goBack") }: { run: Run; place: Place; text?: string }) {
  const rewind = async () => {
    await post(pathOf(threadOf(run), "rewind"), place);
    tell(t("runs.rewound"));
    go(to(["runs", run.run_id], { tab: "branches" }));
  };
  return (
    <FormButton title={t("runs.goBack")} text={text} submit={t("runs.goBack")} onSubmit={rewind}>
      <p>{t("runs.rewindHow")}</p>
    </FormButton>
  );
}

/** The whole run can be done again, or undone. */
export function Again({ run }: { run: Run }) {
  if (!may("threads:write") || !run.first_seq) return null;
  return (
    <>
      {may("chat") && <Button onClick={() => again(run)}>{t("runs.again")}</Button>}
      <Rewind run={run} place={{ at: run.first_seq }} text={t("runs.undo")} />
    </>
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
  const states = useLoaded(() => Promise.all([stateAt(run, before), stateAt(run, turn.turn)]), [run.run_id, turn.turn, before]);
  const begin = async () => {
    const thread = await fork(threadOf(run), { turn: turn.turn });
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
        {may("threads:write") && <Rewind run={run} place={{ turn: turn.turn }} />}
      </div>
      <Show of={states}>{([was, is]) => (whole ? <Json value={is} depth={4} /> : <Diff before={was} after={is} label={t("runs.tab.state")} />)}</Show>
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
