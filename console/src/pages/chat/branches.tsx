/** The branches of a thread: what was said before a message was edited, or answered again. As a tree, and, where they part,
 * as a way to the ones beside the one that is shown. */
import { useComputed } from "@preact/signals";
import { api, data, filled, type Branch, type Message, type Page } from "../../api";
import { go, search, to } from "../../route";
import { allOf, Button, Show, Time, useLoaded, type After } from "../../ui";
import { t } from "../../words";
import { rewind, type Named } from "./send";
import type { ThreadStore } from "./store";

interface Parting {
  /** The message after which they part. */
  at: number;
  /** In the order in which they were made. */
  branches: readonly Branch[];
  /** Of the one that is shown. */
  place: number;
}

/** The branches of a thread, in the order in which they were made: all, or some more than `most`. */
export function branchesOf({ id, owner }: Named, most?: number): Promise<Branch[]> {
  const of = (after: After) => ({ path: { thread_id: id }, query: { ...filled({ owner }), after: Number(after ?? -1), limit: 100 } });
  return allOf((after) => data(api.GET("/v1/threads/{thread_id}/branches", { params: of(after) })), most);
}

/** A page of the messages of a thread, on a branch; null: the one on which it goes on. */
export function messagesOf({ id, owner }: Named, branch: number | null, after: number, limit = 100): Promise<Page<Message>> {
  const query = { after, limit, ...filled({ owner, branch }) };
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
  const turn = (step: number) => {
    const number = of.branches[of.place + step]?.number ?? 0;
    const [current, chosen] = [store.thread.value?.branch ?? 0, number].map((each) => lineOf(store.branches.value, each)) as [Branch[], Branch[]];
    // Where the chat itself goes that way, it needs no name in the address.
    const isCurrent = holder(current, of.at) === holder(chosen, of.at) && current.find((each) => of.branches.includes(each)) === chosen[0];
    search({ branch: isCurrent ? null : String(number) });
  };
  return (
    <span class="siblings" role="group" aria-label={t("runs.tab.branches")}>
      <Button kind="ghost" label={t("chat.siblingBefore")} disabled={of.place === 0} onClick={() => turn(-1)}>‹</Button>
      {of.place + 1}/{of.branches.length}
      <Button kind="ghost" label={t("chat.siblingAfter")} disabled={of.place === of.branches.length - 1} onClick={() => turn(1)}>›</Button>
    </span>
  );
}

/** Branches of which the first words are looked up. */
const QUOTED = 50;

export function nameOf(number: number): string {
  return number === 0 ? t("chat.firstBranch") : t("runs.branchN", { n: number });
}

async function all(store: ThreadStore): Promise<{ branches: Branch[]; quotes: Map<number, string> }> {
  const branches = await branchesOf(store);
  const quotes = new Map<number, string>();
  const quote = async ({ number, at_seq }: Branch) => {
    const found = (await messagesOf(store, number, at_seq, 1)).data[0];
    if (found) quotes.set(number, found.content.slice(0, 120));
  };
  await Promise.all(branches.slice(-QUOTED).map(quote));
  return { branches, quotes };
}

interface TreeProps {
  store: ThreadStore;
  branches: readonly Branch[];
  quotes: ReadonlyMap<number, string>;
  parent: number | null;
  onClose: () => void;
}

function Tree(props: TreeProps) {
  const { store, branches, quotes, parent, onClose } = props;
  const here = branches.filter((each) => (each.parent ?? null) === parent);
  if (!here.length) return null;
  return (
    <ul class="tree">
      {here.map((each) => (
        <li key={each.number}>
          <div class="row">
            <strong>{nameOf(each.number)}</strong>
            {each.is_current && <span class="badge">{t("is.current")}</span>}
            <span class="quiet">
              {each.number > 0 && t("chat.from", { n: each.at_seq + 1 })} <Time at={each.created_at} />
            </span>
            {!each.is_current && <Button onClick={() => (search({ branch: String(each.number) }), onClose())}>{t("chat.show")}</Button>}
            {!each.is_current && <ContinueHere store={store} branch={each.number} onDone={onClose} />}
          </div>
          <p class="quiet quote">
            <bdi>{quotes.get(each.number)}</bdi>
          </p>
          <Tree {...props} parent={each.number} />
        </li>
      ))}
    </ul>
  );
}

/** Have the thread go on from the end of a branch. */
export function ContinueHere({ store, branch, onDone }: { store: ThreadStore; branch: number; onDone?: () => void }) {
  if (!store.allows("threads:write")) return null;
  const goOn = async () => {
    await rewind(store, { branch });
    go(to(["chat", store.id], { owner: store.owner }));
    onDone?.();
  };
  return (
    <Button kind="primary" onClick={goOn}>{t("chat.continueHere")}</Button>
  );
}

/** `onClose`: where one of them is chosen. */
export function Branches({ store, onClose }: { store: ThreadStore; onClose: () => void }) {
  const found = useLoaded(() => all(store), [store]);
  return <Show of={found}>{(value) => <Tree store={store} {...value} parent={null} onClose={onClose} />}</Show>;
}
