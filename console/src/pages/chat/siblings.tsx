/** Where branches of a thread part: which of them is shown, and a way to the ones beside it. */
import { useComputed } from "@preact/signals";
import { api, data, type Branch, type Message, type Page } from "../../api";
import { search } from "../../route";
import { allOf, Button, type After } from "../../ui";
import { t } from "../../words";
import type { Named } from "./send";
import type { ThreadStore } from "./store";

export interface Parting {
  /** The message after which they part. */
  at: number;
  /** In the order in which they were made. */
  branches: readonly Branch[];
  /** Of the one that is shown. */
  place: number;
}

/** The branches of a thread, in the order in which they were made: all, or some more than `most`. */
export function branchesOf({ id, owner }: Named, most?: number): Promise<Branch[]> {
  const of = (after: After) => ({ path: { thread_id: id }, query: { ...(owner ? { owner } : {}), after: Number(after ?? -1), limit: 100 } });
  return allOf((after) => data(api.GET("/v1/threads/{thread_id}/branches", { params: of(after) })), most);
}

/** A page of the messages of a thread, on a branch; null: the one on which it goes on. */
export function messagesOf({ id, owner }: Named, branch: number | null, after: number, limit = 100): Promise<Page<Message>> {
  const query = { after, limit, ...(owner ? { owner } : {}), ...(branch === null ? {} : { branch }) };
  return data(api.GET("/v1/threads/{thread_id}/messages", { params: { path: { thread_id: id }, query } }));
}

/** A branch and those that it began from, to the first one. */
export function lineOf(branches: readonly Branch[], number: number): Branch[] {
  const numbered = new Map(branches.map((each) => [each.number, each]));
  const line: Branch[] = [];
  for (let each = numbered.get(number); each; each = numbered.get(each.parent ?? -1)) line.push(each);
  return line;
}

/** The branch that a line has at message `at`. */
const holder = (line: readonly Branch[], at: number) => line.find((each) => each.at_seq < at) ?? line.at(-1);

/** Where the line that ends with the branch `shown` parts from others, by the first message after that. */
export function partingsOf(branches: readonly Branch[], shown: number, messages: readonly Message[], hasEarlier: boolean): ReadonlyMap<number, Parting> {
  const line = lineOf(branches, shown);
  const found = new Map<number, Parting>();
  for (const at of new Set(branches.filter((each) => each.number > 0).map((each) => each.at_seq))) {
    const first = messages.findIndex((each) => each.seq > at);
    const message = messages[first];
    if (!message || (first === 0 && hasEarlier)) continue;
    const trunk = holder(line, at);
    const begins = (each: Branch) => each.at_seq === at && holder(lineOf(branches, each.number).slice(1), at) === trunk && (each.last_seq > at || line.includes(each));
    const beside = branches.filter((each) => (each === trunk ? each.last_seq > at : each.number > 0 && begins(each)));
    const on = line.find((each) => beside.includes(each));
    if (on && beside.length > 1) found.set(message.seq, { at, branches: beside, place: beside.indexOf(on) });
  }
  return found;
}

/** `seq`: of the message before which they stand, where branches part there. */
export function Siblings({ store, seq }: { store: ThreadStore; seq: number }) {
  const of = useComputed(() => store.partings.value.get(seq)).value;
  if (!of) return null;
  const go = (step: number) => {
    const number = of.branches[of.place + step]?.number ?? 0;
    const [current, chosen] = [store.thread.value?.branch ?? 0, number].map((each) => lineOf(store.branches.value, each)) as [Branch[], Branch[]];
    // Where the chat itself goes that way, it needs no name in the address.
    const isCurrent = holder(current, of.at) === holder(chosen, of.at) && current.find((each) => of.branches.includes(each)) === chosen[0];
    search({ branch: isCurrent ? null : String(number) });
  };
  return (
    <span class="siblings" role="group" aria-label={t("runs.tab.branches")}>
      <Button kind="ghost" label={t("chat.siblingBefore")} disabled={of.place === 0} onClick={() => go(-1)}>‹</Button>
      {of.place + 1}/{of.branches.length}
      <Button kind="ghost" label={t("chat.siblingAfter")} disabled={of.place === of.branches.length - 1} onClick={() => go(1)}>›</Button>
    </span>
  );
}
