/** Chat: one's threads, and those that others share, beside one of them, or beside the beginning of a new one. */
import { useSignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { api, data, filled, type Page, type ThreadEntry } from "../../api";
import { chosen, go, path, query, to } from "../../route";
import { may } from "../../session";
import { Button, Field, LinkButton, Loading, optionsOf, paged, PageHead, Problem, SearchSelect, Status, Time, useListing } from "../../ui";
import { t } from "../../words";
import { useTeams } from "../agents/offers";
import { Composer, TeamChoice } from "./composer";
import { Conversation } from "./conversation";
import { ask, BLANK, type Content } from "./send";

type Entry = ThreadEntry & { owner?: string; right?: string };

const STATUSES = ["running", "awaiting_input", "paused", "completed", "stopped", "error"] as const;
/** Seconds between two looks at what is new. */
const OFTEN = 5;

/** Where an entry leads: to the same list, beside its thread. */
function hrefOf(entry: Entry): string {
  const kept = Object.fromEntries(["list", "status"].map((name) => [name, query.value.get(name)]));
  return to(["chat", entry.thread_id], { ...kept, owner: entry.owner ?? null });
}

function Threads({ onPick }: { onPick: () => void }) {
  const [words, setWords] = useState("");
  const shared = query.value.get("list") === "shared";
  const status = chosen("status", STATUSES);
  const listing = useListing<Entry>(
    async (after) => {
      const query = { ...paged(after, 50), shared, ...filled({ status }) };
      return (await data(api.GET("/v1/threads", { params: { query } }))) as Page<Entry>;
    },
    [shared, status],
    OFTEN,
  );
  const sought = words.trim().toLowerCase();
  const rows = listing.rows.filter((each) => !sought || (each.title ?? each.thread_id).toLowerCase().includes(sought));
  const [current, owner] = [path.value[1], query.value.get("owner")];
  // A chat that was begun a moment ago.
  useEffect(() => {
    if (current !== undefined && owner === null && !shared && !listing.loading && !listing.rows.some((each) => each.thread_id === current)) listing.reload();
  }, [current]);
  return (
    <>
      <div class="threads-head">
        {may("chat") && <LinkButton href={to(["chat"])} onClick={onPick}>{t("chat.new")}</LinkButton>}
        <Field label={t("chat.find")} type="search" placeholder={t("chat.find")} hideLabel value={words} onValue={setWords} />
        <div class="row">
          <SearchSelect label={t("chat.which")} hideLabel name="list" options={[["shared", t("chat.shared")]]} any={t("is.mine")} />
          <SearchSelect label={t("is.status")} hideLabel name="status" options={optionsOf(STATUSES, (each) => t(`status.${each}`))} any={t("chat.any")} />
        </div>
      </div>
      {listing.error !== null && <Problem error={listing.error} retry={listing.reload} />}
      {!rows.length && !listing.error && (listing.loading ? <Loading /> : <p class="quiet threads-none">{t(sought ? "chat.noneFound" : "chat.none")}</p>)}
      <ul class="threads-list">
        {rows.map((each) => (
          <li key={`${each.owner ?? ""}/${each.id}`}>
            <a href={hrefOf(each)} aria-current={each.thread_id === current && (each.owner ?? null) === owner ? "page" : undefined} onClick={onPick}>
              <bdi class="thread-title">{(each.title ?? "").slice(0, 200) || t("chat.untitled")}</bdi>
              <span class="thread-foot">
                {each.status !== "completed" && each.status !== "created" && <Status status={each.status} />}
                <bdi class="quiet thread-team">{each.owner ? t("chat.of", { who: each.owner }) : each.team}</bdi>
                <span class="quiet">
                  <Time at={each.updated_at} />
                </span>
              </span>
            </a>
          </li>
        ))}
        {listing.hasMore && (
          <li>
            <Button onClick={listing.more} disabled={listing.loading}>{t("chat.more")}</Button>
          </li>
        )}
      </ul>
    </>
  );
}

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
