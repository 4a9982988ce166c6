/** A chat on a thread that is thrown away, to try what is stored. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { request } from "../../api";
import { search, to } from "../../route";
import { may } from "../../session";
import { Button } from "../../ui";
import { t } from "../../words";
import { Foot, Outcome } from "../chat/conversation";
import { Log } from "../chat/log";
import { newKey } from "../chat/send";
import { ThreadStore } from "../chat/store";

/** Delete a thread, once what it is still doing has ended. */
async function discard(store: ThreadStore, keepalive = false): Promise<void> {
  store.end();
  if ((store.thread.value === null && !store.pending.value.length) || !may("threads:delete")) return;
  const path = `/v1/threads/${store.id}`;
  const remove = () => request(path, { method: "DELETE", keepalive });
  const ignore = () => undefined;
  if (store.isLive.value) await request(`${path}/cancel`, { method: "POST", keepalive }).catch(ignore);
  await remove().catch(() => setTimeout(() => void remove().catch(ignore), 2000));
}

export function TryOut({ name, note }: { name: string; note?: string }) {
  const [round, setRound] = useState(0);
  const store = useMemo(() => new ThreadStore(`try-${newKey()}`, null, null), [round]);
  const isKnown = store.thread.value !== null;
  const run = store.thread.value?.run_id;
  useEffect(() => {
    const leave = () => void discard(store, true);
    addEventListener("pagehide", leave);
    return () => (removeEventListener("pagehide", leave), void discard(store));
  }, [store]);
  useEffect(() => void (isKnown && store.begin()), [store, isKnown]);
  // The graph of the team shows it.
  useEffect(() => void (run && search({ run })), [run]);
  return (
    <aside class="try" aria-label={t("do.try")}>
      <header class="section-head">
        <h2>{t("do.try")}</h2>
        <span class="quiet">{note}</span>
        {run && may("threads:read") && <a href={to(["runs", run])}>{t("is.run")}</a>}
        {isKnown && <Button onClick={() => (setRound(round + 1), search({ run: null }))}>{t("do.clear")}</Button>}
      </header>
      {isKnown || store.pending.value.length ? <Log key={round} store={store} /> : <p class="quiet try-hint">{t("agents.tryHint")}</p>}
      <div class="foot">
        <Outcome store={store} />
        <Foot key={round} store={store} team={name} focused={false} />
      </div>
    </aside>
  );
}
