/** Two branches of a run's thread, side by side from where they part. */
import type { Branch, Message, Run } from "../../api";
import { asked, search } from "../../route";
import { Empty, Select, Show, useLoaded } from "../../ui";
import { t } from "../../words";
import { branchesOf, lineOf, messagesOf } from "../chat/branches";
import { threadOf } from "./past";

/** The last message that two branches share. */
export function partingOf(branches: readonly Branch[], one: number, other: number): number {
  const [left, right] = [lineOf(branches, one), lineOf(branches, other)];
  const shared = left.find((each) => right.some((own) => own.number === each.number));
  const leaves = (line: Branch[]) => line[line.findIndex((each) => each.number === shared?.number) - 1]?.at_seq ?? Infinity;
  const parting = Math.min(leaves(left), leaves(right));
  return parting === Infinity ? (left[0]?.last_seq ?? 0) : parting;
}

function Side({ label, messages, shared }: { label: string; messages: readonly Message[]; shared: number }) {
  return (
    <section class="side" aria-label={label} tabIndex={0}>
      <h2>{label}</h2>
      <ol class="dialogue">
        {messages.map((each) => (
          <li key={each.seq} class={each.seq <= shared ? "shared" : ""}>
            <span class="kind">
              <code>{each.seq}</code> <bdi>{each.source}</bdi> {each.type}
            </span>
            <pre class="wrap">{each.content.slice(0, 5000)}</pre>
          </li>
        ))}
        {messages.length === 0 && <li class="quiet">{t("runs.branchEnds")}</li>}
      </ol>
    </section>
  );
}

const SHARED = 2;

function Sides({ run, branches, pair }: { run: Run; branches: readonly Branch[]; pair: readonly [number, number] }) {
  const shared = partingOf(branches, ...pair);
  const load = () => Promise.all(pair.map(async (branch) => (await messagesOf(threadOf(run), branch, Math.max(0, shared - SHARED))).data));
  const sides = useLoaded(load, [run.thread_id, ...pair, shared]);
  return (
    <Show of={sides}>
      {(messages) => (
        <>
          <p class="quiet">{t("runs.partAt", { seq: shared })}</p>
          <div class="sides">
            {pair.map((branch, n) => (
              <Side key={n} label={t("runs.branchN", { n: branch })} messages={messages[n] ?? []} shared={shared} />
            ))}
          </div>
        </>
      )}
    </Show>
  );
}

export function Branches({ run }: { run: Run }) {
  const found = useLoaded(() => branchesOf(threadOf(run)), [run.thread_id]);
  return <Show of={found}>{(branches) => <Pair run={run} branches={branches} />}</Show>;
}

function Pair({ run, branches }: { run: Run; branches: readonly Branch[] }) {
  const current = branches.find((each) => each.is_current) ?? branches[0];
  if (!current || branches.length < 2) return <Empty title={t("runs.oneBranch")}>{t("runs.howBranches")}</Empty>;
  const chosen = (name: string, other: number) => branches.find((each) => String(each.number) === asked(name))?.number ?? other;
  const pair = [chosen("left", branches.findLast((each) => each !== current)?.number ?? 0), chosen("right", current.number)] as const;
  const options = branches.map((each) => [String(each.number), t("runs.branchN", { n: each.number }) + (each.is_current ? ` · ${t("is.current")}` : "")] as const);
  return (
    <>
      <div class="filters">
        <Select label={t("runs.left")} value={String(pair[0])} options={options} onValue={(left) => search({ left })} />
        <Select label={t("runs.right")} value={String(pair[1])} options={options} onValue={(right) => search({ right })} />
      </div>
      <Sides run={run} branches={branches} pair={pair} />
    </>
  );
}
