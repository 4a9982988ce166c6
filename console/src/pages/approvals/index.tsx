/** What waits for whoever looks: questions and approvals of their runs, and those for their roles. */
import { useEffect, useRef } from "preact/hooks";
import { api, data, type Asked } from "../../api";
import { to } from "../../route";
import { may, me } from "../../session";
import { Empty, paged, PageHead, Rest, tell, Time, useListing } from "../../ui";
import { t } from "../../words";
import { Question } from "./question";

/** Seconds between two looks at what waits. */
const OFTEN = 4;

function WaitingFor({ entry, onDone }: { entry: Asked; onDone: () => void }) {
  const owner = entry.owner === me.value?.user ? null : entry.owner;
  // Whoever is named may answer, and need not be able to read the thread.
  const mayRead = !owner || !entry.by;
  const title = <bdi>{entry.title || entry.thread_id}</bdi>;
  return (
    <li class="waiting">
      <header class="row">
        {mayRead && may("chat") ? <a href={to(["chat", entry.thread_id], { owner })}>{title}</a> : <strong>{title}</strong>}
        <span class="quiet">
          <bdi>{t("approvals.of", { agent: entry.source, team: entry.team ?? "–" })}</bdi> · <bdi>{t("approvals.asked", { who: entry.asker ?? entry.owner })}</bdi>
          {entry.by && <bdi> · {t("approvals.for", { who: entry.by })}</bdi>} · <Time at={entry.asked_at} />
        </span>
        {mayRead && <a href={to(["runs", entry.run_id])}>{t("is.run")}</a>}
      </header>
      <Question asked={entry} thread={entry.thread_id} owner={owner} onDone={onDone} />
    </li>
  );
}

export default function Approvals() {
  const listing = useListing<Asked>((after) => data(api.GET("/v1/input-requests", { params: { query: paged(after, 50) } })), [], OFTEN);
  const { rows, hasMore } = listing;
  const before = useRef<readonly Asked[]>([]);
  const done = (id: string) => {
    before.current = before.current.filter((each) => each.id !== id);
    listing.change((old) => old.filter((each) => each.id !== id));
  };
  // What goes without having been answered here was answered elsewhere: whoever was about to is told.
  useEffect(() => {
    const gone = before.current.filter((each) => !rows.some((other) => other.id === each.id));
    for (const each of gone.slice(0, 3)) tell(`${(each.title || each.thread_id).slice(0, 80)}: ${t("ask.stale")}`, "problem");
    before.current = rows;
  }, [rows]);
  return (
    <div class="page approvals">
      <PageHead title={t("nav.approvals")}>{rows.length > 0 && <span class="badge">{t("approvals.waiting", { n: hasMore ? `${rows.length}+` : rows.length })}</span>}</PageHead>
      <ul class="waiting-list" aria-live="polite">
        {rows.map((entry) => (
          <WaitingFor key={entry.id} entry={entry} onDone={() => done(entry.id)} />
        ))}
      </ul>
      <Rest of={listing} empty={<Empty title={t("approvals.none")}>{t("approvals.noneHint")}</Empty>} />
    </div>
  );
}
