/** The branches of a thread as a tree: what was said before a message was edited, or answered again. */
import type { Branch } from "../../api";
import { go, search, to } from "../../route";
import { Button, Dialog, Show, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { rewind } from "./send";
import { branchesOf, messagesOf } from "./siblings";
import type { ThreadStore } from "./store";

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

export function Branches({ store, onClose }: { store: ThreadStore; onClose: () => void }) {
  const found = useLoaded(() => all(store), [store]);
  return (
    <Dialog title={t("runs.tab.branches")} onClose={onClose}>
      <Show of={found}>{(value) => <Tree store={store} {...value} parent={null} onClose={onClose} />}</Show>
    </Dialog>
  );
}
