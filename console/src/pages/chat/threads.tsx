/** The list of one's threads, and of those that others share. */
import { useEffect, useState } from "preact/hooks";
import { api, data, type Page, type ThreadEntry } from "../../api";
import { chosen, path, query, to } from "../../route";
import { may } from "../../session";
import { Button, Field, Loading, optionsOf, paged, Problem, SearchSelect, Status, Time, useListing } from "../../ui";
import { t } from "../../words";

export type Entry = ThreadEntry & { owner?: string; right?: string };

const STATUSES = ["running", "awaiting_input", "paused", "completed", "stopped", "error"] as const;
/** Seconds between two looks at what is new. */
const OFTEN = 5;

/** Where an entry leads: to the same list, beside its thread. */
function hrefOf(entry: Entry): string {
  const kept = Object.fromEntries(["list", "status"].map((name) => [name, query.value.get(name)]));
  return to(["chat", entry.thread_id], { ...kept, owner: entry.owner ?? null });
}

export function Threads({ onPick }: { onPick: () => void }) {
  const [words, setWords] = useState("");
  const shared = query.value.get("list") === "shared";
  const status = chosen("status", STATUSES);
  const listing = useListing<Entry>(
    async (after) => {
      const asked = { ...paged(after, 50), shared, ...(status ? { status } : {}) };
      return (await data(api.GET("/v1/threads", { params: { query: asked } }))) as Page<Entry>;
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
        {may("chat") && (
          <a class="button primary" href={to(["chat"])} onClick={onPick}>
            {t("chat.new")}
          </a>
        )}
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
