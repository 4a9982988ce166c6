/** Chat: one's threads beside one of them, or beside the beginning of a new one. */
import { useSignal } from "@preact/signals";
import { useState } from "preact/hooks";
import { go, path, query, to } from "../../route";
import { Button, PageHead, Problem } from "../../ui";
import { t } from "../../words";
import { useTeams } from "../agents/offers";
import { Composer, TeamChoice } from "./composer";
import { Conversation } from "./conversation";
import { ask, BLANK, type Content } from "./send";
import { Threads } from "./threads";

function NewChat() {
  const teams = useTeams();
  const [chosen, setChosen] = useState(query.value.get("team"));
  const written = useSignal(BLANK);
  const team = chosen ?? teams.value?.[0]?.id ?? "";
  const begin = async (content: Content, key: string) => {
    const run = await ask(team, content, key);
    go(to(["chat", run.thread_id]));
  };
  return (
    <div class="conversation new-chat">
      <PageHead title={t("chat.new")} />
      <p class="welcome">{t("chat.begin")}</p>
      {teams.error !== null && <Problem error={teams.error} retry={teams.reload} />}
      {teams.value?.length === 0 && <p class="quiet">{t("chat.noModels")}</p>}
      <Composer written={written} onSend={begin} disabled={!team}>
        <TeamChoice teams={teams.value} value={team} onValue={setChosen} />
      </Composer>
      <p class="quiet">{teams.value?.find((each) => each.id === team)?.description}</p>
    </div>
  );
}

export default function Chat() {
  const [open, setOpen] = useState(false);
  const id = path.value[1];
  const branch = query.value.get("branch");
  const number = branch !== null && /^\d{1,9}$/.test(branch) ? Number(branch) : null;
  return (
    <div class="chat">
      <aside class={open ? "threads open" : "threads"} aria-label={t("chat.list")}>
        <Threads onPick={() => setOpen(false)} />
      </aside>
      <div class="chat-main">
        <div class="threads-open">
          <Button pressed={open} onClick={() => setOpen(!open)}>{t("chat.list")}</Button>
        </div>
        {id === undefined ? <NewChat /> : <Conversation id={id} owner={query.value.get("owner")} branch={number} />}
      </div>
    </div>
  );
}
