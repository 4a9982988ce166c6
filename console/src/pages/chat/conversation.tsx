/** A thread: what was said, what is being said, and where one goes on. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, data, type Asked } from "../../api";
import { go, search, to } from "../../route";
import { may, me } from "../../session";
import { Button, ConfirmButton, DialogButton, Loading, PageHead, Problem, Status } from "../../ui";
import { t } from "../../words";
import { useTeams } from "../agents/offers";
import { Question } from "../approvals/question";
import { Branches, ContinueHere, nameOf } from "./branches";
import { Composer, TeamChoice } from "./composer";
import { Log } from "./log";
import { say, steer } from "./send";
import { ThreadStore } from "./store";

function Head({ store }: { store: ThreadStore }) {
  const thread = store.thread.value;
  const remove = async () => {
    await data(api.DELETE("/v1/threads/{thread_id}", { params: { path: { thread_id: store.id } } }));
    go(to(["chat"]));
  };
  return (
    <PageHead title={(thread?.title ?? "").slice(0, 200) || t("chat.untitled")}>
      {thread?.run_id && <Status status={thread.status} />}
      {!!thread?.queued && <span class="badge">{t("chat.queued", { n: thread.queued })}</span>}
      {thread?.run_id && <a href={to(["runs", thread.run_id])}>{t("is.run")}</a>}
      {thread && thread.branch !== null && thread.branch !== undefined && <DialogButton title={t("runs.tab.branches")}>{(close) => <Branches store={store} onClose={close} />}</DialogButton>}
      {may("threads:delete") && !store.owner && (
        <ConfirmButton title={t("do.delete")} text={t("chat.deleteSure")} onYes={remove} />
      )}
    </PageHead>
  );
}

/** What is to be known of the latest run: who works, why it failed, and what can be done. */
export function Outcome({ store }: { store: ThreadStore }) {
  const thread = store.thread.value;
  const working = store.isLive.value;
  const who = [...new Set(store.drafts.value.map((each) => each.source))].join(", ") || (thread?.team ?? "");
  return (
    <>
      <p class={working ? "works" : "unseen"} role="status">{working ? t("chat.works", { who }) : thread?.status === "completed" ? t("chat.finished") : ""}</p>
      {thread?.status === "error" && (
        <div class="problem">
          <p>{thread.error_message}</p>
          {store.allows("threads:write") && <Button onClick={() => steer(store, "retry")}>{t("chat.retry")}</Button>}
        </div>
      )}
      {thread?.status === "paused" && store.allows("threads:write") && <Button onClick={() => steer(store, "resume")}>{t("runs.do.resume")}</Button>}
    </>
  );
}

interface FootProps {
  store: ThreadStore;
  team: string;
  /** Whether it takes the focus. */
  focused?: boolean;
  /** What stands beside the buttons. */
  children?: ComponentChildren;
}

/** Where one goes on: a message is written, or a question answered. */
export function Foot({ store, team, focused, children }: FootProps) {
  const thread = store.thread.value;
  const isWaiting = thread?.status === "awaiting_input";
  const stop = store.allows("runs:cancel") && (store.isLive.value || isWaiting) ? () => steer(store, "cancel") : null;
  if (isWaiting && thread.input_request)
    return (
      <>
        <Question key={String(thread.input_request["id"])} asked={thread.input_request as unknown as Asked} thread={store.id} owner={store.owner} right={store.right.value} onDone={() => void store.refresh()} />
        {stop && <Button onClick={stop}>{t("ask.stop")}</Button>}
      </>
    );
  if (!store.allows("chat")) return <p class="quiet">{t("chat.readOnly")}</p>;
  return (
    <Composer written={store.written} onSend={(content, key) => say(store, team, content, key)} disabled={!team} stop={stop} focused={focused}>
      {children}
    </Composer>
  );
}

function TeamFoot({ store }: { store: ThreadStore }) {
  const teams = useTeams();
  const [chosen, setChosen] = useState<string | null>(null);
  const last = useRef<string | undefined>(undefined);
  // One that has gone back to its beginning has no team: the one that it had is the nearest.
  last.current = store.thread.value?.team ?? last.current ?? teams.value?.[0]?.id;
  const team = chosen ?? last.current ?? "";
  return (
    <Foot store={store} team={team}>
      <TeamChoice teams={teams.value} value={team} onValue={setChosen} />
    </Foot>
  );
}

export function Conversation({ id, owner, branch }: { id: string; owner: string | null; branch: number | null }) {
  const theirs = owner === me.value?.user ? null : owner;
  const store = useMemo(() => new ThreadStore(id, theirs, branch), [id, theirs, branch]);
  useEffect(() => {
    void store.begin();
    const look = () => document.hidden || void store.refresh();
    document.addEventListener("visibilitychange", look);
    return () => (document.removeEventListener("visibilitychange", look), store.end());
  }, [store]);
  if (store.error.value !== null) return <Problem error={store.error.value} retry={() => location.reload()} />;
  if (store.thread.value === null) return <Loading />;
  return (
    <div class="conversation">
      <Head store={store} />
      <Log key={`${id}/${branch}`} store={store} />
      <div class="foot">
        {branch === null ? (
          <>
            <Outcome store={store} />
            <TeamFoot store={store} />
          </>
        ) : (
          <div class="row left-branch">
            <p>{t("chat.left", { branch: nameOf(branch) })}</p>
            <ContinueHere store={store} branch={branch} />
            <Button onClick={() => search({ branch: null })}>{t("chat.back")}</Button>
          </div>
        )}
      </div>
    </div>
  );
}
