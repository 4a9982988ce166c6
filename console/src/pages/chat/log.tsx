/** The messages of a thread, with what is said at this moment at their end. */
import { useComputed } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button, Loading } from "../../ui";
import { Markdown, Thought } from "../../ui/markdown";
import { t } from "../../words";
import { BlockView, Call } from "./block";
import { blocksOf, type Block } from "./blocks";
import type { Draft, Pending, ThreadStore } from "./store";
import "./chat.css";

/** So near to the end, in pixels, new text keeps the end in view. */
const NEAR = 60;
/** So near to the beginning, earlier messages are loaded. */
const SOON = 1500;

/** The blocks as elements. One that has not changed is the same element as before, which costs nothing to draw. */
function useBlocks(store: ThreadStore): VNode[] {
  const known = useRef<ReadonlyMap<string, Block>>(new Map());
  const drawn = useRef(new WeakMap<Block, VNode>());
  const messages = store.messages.value;
  return useMemo(() => {
    const blocks = blocksOf(messages, known.current);
    known.current = new Map(blocks.map((each) => [each.key, each]));
    let question: Block | null = null;
    return blocks.map((block) => {
      if (block.isUser) question = block;
      const made = drawn.current.get(block) ?? <BlockView key={block.key} block={block} store={store} question={block.isUser ? null : question} />;
      drawn.current.set(block, made);
      return made;
    });
  }, [messages]);
}

function Drafted({ draft }: { draft: Draft }) {
  if (draft.kind === "thought") return <Thought text={draft.text} />;
  if (draft.kind === "call") return <Call name={draft.name ?? ""} text={draft.text} result={draft.result ?? null} failed={draft.failed ?? false} />;
  return <Markdown text={draft.text} />;
}

/** What is being said: each speaker apart, in the order in which they began. */
function Drafts({ store }: { store: ThreadStore }) {
  const bySpeaker = new Map<string, Draft[]>();
  for (const each of store.drafts.value) bySpeaker.set(each.source, [...(bySpeaker.get(each.source) ?? []), each]);
  return (
    <>
      {[...bySpeaker].map(([source, drafts]) => (
        <article key={source} class="block live" aria-label={source}>
          <header>
            <h2 class="speaker">
              <bdi>{source}</bdi>
            </h2>
          </header>
          {drafts.map((each, n) => (
            <Drafted key={n} draft={each} />
          ))}
        </article>
      ))}
    </>
  );
}

function Waiting({ pending }: { pending: readonly Pending[] }) {
  return (
    <>
      {pending.map(({ key, text }) => (
        <article key={key} class="block of-user pending" aria-label={t("is.you")}>
          <header>
            <h2 class="speaker">{t("is.you")}</h2> <span class="quiet">{t("chat.waits")}</span>
          </header>
          <div class="plain">{text}</div>
        </article>
      ))}
    </>
  );
}

export function Log({ store }: { store: ThreadStore }) {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const [isAway, setAway] = useState(false);
  const blocks = useBlocks(store);
  const before = useRef({ first: "", height: 0, top: 0 });
  const first = useComputed(() => String(store.messages.value[0]?.seq ?? ""));
  const toEnd = () => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  };
  const look = () => {
    if (!box.current) return;
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    before.current = { ...before.current, height: scrollHeight, top: scrollTop };
    atEnd.current = scrollHeight - scrollTop - clientHeight < NEAR;
    setAway(!atEnd.current);
    if (scrollTop < SOON && store.hasEarlier.value) void store.loadEarlier();
  };
  // What is put before what is looked at does not move it.
  useLayoutEffect(() => {
    const shown = box.current;
    const { first: was, height, top } = before.current;
    if (shown && was && first.value !== was && !atEnd.current) shown.scrollTop = top + shown.scrollHeight - height;
    if (shown) before.current = { first: first.value, height: shown.scrollHeight, top: shown.scrollTop };
  }, [first.value]);
  useEffect(() => {
    const watcher = new ResizeObserver(() => (atEnd.current ? toEnd() : look()));
    if (content.current) watcher.observe(content.current);
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  return (
    <div class="log-frame">
      <div class="log" ref={box} onScroll={look} tabIndex={0} role="region" aria-label={t("chat.messages")}>
        <div class="log-content" ref={content}>
          {store.loading.value && <Loading lines={2} />}
          {store.hasEarlier.value && !store.loading.value && <Button onClick={() => store.loadEarlier()}>{t("chat.earlier")}</Button>}
          {blocks}
          {store.attempt.value > 1 && store.isLive.value && <p class="quiet">{t("chat.again", { n: store.attempt.value })}</p>}
          <Drafts store={store} />
          <Waiting pending={store.pending.value} />
        </div>
      </div>
      {isAway && (
        <div class="to-end">
          <Button onClick={() => ((atEnd.current = true), toEnd())}>↓ {t("chat.newest")}</Button>
        </div>
      )}
    </div>
  );
}
