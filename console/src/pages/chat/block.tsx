/** What one speaker has said and done in a row, and what a model was shown of the memory for it. */
import { useMemo, useState } from "preact/hooks";
import { api, data, type Listed } from "../../api";
import { go, to } from "../../route";
import { may } from "../../session";
import { Button, CopyButton, Folded, Json, jsonOf, Rest, Time, useListing, type After } from "../../ui";
import { Markdown, Thought } from "../../ui/markdown";
import { t } from "../../words";
import { citationsOf, type Block, type Part } from "./blocks";
import { Editor } from "./composer";
import { FileChips, Pictures, saveFile } from "./files";
import { fork, madeOf, sayAgain, type Made } from "./send";
import { Siblings } from "./branches";
import type { ThreadStore } from "./store";

const MOST = 100;

function Memories({ versions }: { versions: readonly string[] }) {
  const page = async (after: After) => {
    const begin = Number(after ?? 0);
    const end = begin + MOST;
    const query = { "version_id[]": versions.slice(begin, end), limit: MOST };
    return { ...(await data(api.GET("/v1/memories", { params: { query } }))), next: end < versions.length ? end : null };
  };
  const listing = useListing<Listed<"/v1/memories">>(page, [versions]);
  const [forgotten, setForgotten] = useState<ReadonlySet<string>>(new Set());
  const forget = async (id: string) => {
    await data(api.DELETE("/v1/memories/{memory_id}", { params: { path: { memory_id: id } } }));
    setForgotten((old) => new Set(old).add(id));
  };
  return (
    <>
      <ul>
        {listing.rows.map(({ id, text }) => (
          <li key={id}>
            <bdi>{text}</bdi> {forgotten.has(id) ? <span class="badge">{t("chat.forgotten")}</span> : may("memory:delete") && <Button onClick={() => forget(id)}>{t("do.forget")}</Button>}
          </li>
        ))}
      </ul>
      <Rest of={listing} lines={1} empty={<p class="quiet">{t("chat.noMemory")}</p>} />
    </>
  );
}

function Recalled({ versions }: { versions: readonly string[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="thought" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("chat.recalled", { n: versions.length })}</summary>
      {open && <Memories versions={versions} />}
    </details>
  );
}

/** JSON as a tree where it is JSON, else as it came. */
function Value({ label, text }: { label: string; text: string }) {
  const value = useMemo(() => jsonOf(text), [text]);
  return (
    <div class="tool-value">
      <span class="quiet">{label}</span>
      {typeof value === "object" && value !== null ? <Json value={value} /> : <div class="plain"><Folded text={text} /></div>}
    </div>
  );
}

export function Call({ name, text, result, failed }: { name: string; text: string; result: string | null; failed: boolean }) {
  const state = result === null ? "chat.calling" : failed ? "chat.failed" : "runs.outcome.done";
  return (
    <details class="tool">
      <summary>
        <bdi class="mono">{name}</bdi> <span class={`status ${result === null ? "running" : failed ? "error" : "completed"}`}>{t(state)}</span>
      </summary>
      <Value label={t("ask.arguments")} text={text} />
      {result !== null && <Value label={t("is.result")} text={result} />}
    </details>
  );
}

function Said({ part }: { part: Extract<Part, { kind: "text" }> }) {
  const { message } = part;
  const { marks, sources } = useMemo(() => citationsOf(message), [message]);
  if (part.aside) return <Thought text={message.content} title={t("chat.aside")} />;
  return (
    <>
      <Markdown text={message.content} mark={(name) => (marks.has(name) ? <sup class="cite">{marks.get(name)}</sup> : `【${name}】`)} />
      <Pictures message={message} />
      {sources.length > 0 && (
        <ol class="sources" aria-label={t("chat.sources")}>
          {sources.map((each, n) => (
            <li key={n}>
              <Button kind="ghost" disabled={!may("files:read")} onClick={() => saveFile(each.file_id, each.filename)}>
                {n + 1}. <bdi>{each.filename}</bdi>
                {each.page !== undefined && `, ${t("chat.page", { n: each.page })}`}
              </Button>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}

function Piece({ part }: { part: Part }) {
  switch (part.kind) {
    case "thought":
      return <Thought text={part.text} />;
    case "call":
      return (
        <>
          <Call name={part.name} text={part.arguments} result={part.result} failed={part.failed} />
          <FileChips files={part.files} />
        </>
      );
    case "handoff":
      return (
        <p class="quiet">
          {t("chat.handoff", { who: part.to })}: <bdi>{part.text}</bdi>
        </p>
      );
    case "decision": {
      const dump = part.message.message as { user_id?: string | null; decision?: string; reason?: string | null };
      return (
        <p class="decision">
          {t("chat.decided", { who: dump.user_id ?? part.message.source, decision: dump.decision ?? "" })}
          {part.message.content && part.message.content !== dump.decision && <bdi> – {part.message.content}</bdi>}
          {dump.reason && <bdi> – {dump.reason}</bdi>}
        </p>
      );
    }
    default:
      return <Said part={part} />;
  }
}

interface BlockProps {
  block: Block;
  store: ThreadStore;
  /** The user's message that it answers, of a block that does. */
  question: Block | null;
}

/** What can be done about a block: nothing of it while something runs. */
function Acts({ block, store, question, onEdit }: BlockProps & { onEdit: () => unknown }) {
  const last = block.messages.at(-1);
  const asked = question?.messages[0];
  const isFree = !store.isLive.value && store.branch === null && store.allows("threads:write", "chat") && !!store.thread.value?.team;
  return (
    <div class="acts">
      <CopyButton text={block.parts.map((each) => (each.kind === "text" && !each.aside ? each.message.content : "")).filter(Boolean).join("\n\n")} />
      {block.isUser && isFree && <Button kind="ghost" onClick={onEdit}>{t("do.edit")}</Button>}
      {!block.isUser && isFree && asked && <Button kind="ghost" onClick={async () => sayAgain(store, asked.seq, await madeOf(asked))}>{t("chat.regenerate")}</Button>}
      {!block.isUser && may("threads:write") && last && (
        <Button kind="ghost" onClick={async () => go(to(["chat", await fork(store, { at: last.seq })]))}>{t("chat.fork")}</Button>
      )}
      {!block.isUser && block.run && <a href={to(["runs", block.run])}>{t("is.run")}</a>}
    </div>
  );
}

export function BlockView({ block, store, question }: BlockProps) {
  const [editing, setEditing] = useState<Made | null>(null);
  const first = block.messages[0];
  const who = block.isUser ? ((first?.message["metadata"] as Record<string, string> | undefined)?.["user_id"] ?? t("is.you")) : block.source;
  return (
    <article class={block.isUser ? "block of-user" : "block"} aria-label={who}>
      <header>
        <h2 class="speaker">
          <bdi>{who}</bdi>
        </h2>{" "}
        <Time at={first?.created_at} />
        {first && <Siblings store={store} seq={first.seq} />}
        <Acts block={block} store={store} question={question} onEdit={async () => first && setEditing(await madeOf(first))} />
      </header>
      {editing && first ? (
        <Editor seq={first.seq} made={editing} store={store} onClose={() => setEditing(null)} />
      ) : block.isUser ? (
        <>
          <div class="plain">
            <Folded text={first?.content.replaceAll("[image]", "").trim() ?? ""} />
          </div>
          {first && <Pictures message={first} />}
          <FileChips files={first?.files ?? []} />
        </>
      ) : (
        block.parts.map((part, n) => <Piece key={n} part={part} />)
      )}
      {block.recalled.length > 0 && may("memory:read") && <Recalled versions={block.recalled} />}
    </article>
  );
}
