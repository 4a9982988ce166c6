/** Messages as they are read: what one speaker says and does in a row is a block, a tool call and its result one part. */
import { text, type Message, type ToolCall } from "../../api";

export type Part =
  | { kind: "text"; message: Message; aside: boolean }
  | { kind: "thought"; text: string }
  | { kind: "call"; id: string; name: string; arguments: string; result: string | null; failed: boolean; files: readonly File[] }
  | { kind: "decision"; message: Message }
  | { kind: "handoff"; to: string; text: string };

export type File = NonNullable<Message["files"]>[number];

export interface Block {
  key: string;
  source: string;
  isUser: boolean;
  run: string | null;
  messages: Message[];
  parts: Part[];
  /** The versions of memories that a model was shown for it. */
  recalled: readonly string[];
}

const listed = <T>(value: unknown) => (Array.isArray(value) ? (value as T[]) : []);
export const metadata = (message: Message) => (message.message["metadata"] ?? {}) as Record<string, unknown>;

type Calls = Map<string, Extract<Part, { kind: "call" }>>;

function partsOf(message: Message, calls: Calls): Part[] {
  const content = message.message["content"];
  switch (message.type) {
    case "ThoughtEvent":
      return [{ kind: "thought", text: message.content }];
    case "ToolCallRequestEvent":
      return listed<ToolCall>(content).map((each) => {
        const part = { kind: "call" as const, id: text(each.id), name: text(each.name), arguments: text(each.arguments), result: null, failed: false, files: [] };
        calls.set(part.id, part);
        return part;
      });
    case "ToolCallExecutionEvent":
      for (const each of listed<ToolCall>(content)) {
        const part = calls.get(text(each.call_id));
        if (!part) continue;
        part.result = text(each.content);
        part.failed = each.is_error === true;
        part.files = (message.files ?? []).filter((file) => file.call_id === part.id);
      }
      return [];
    case "UserInputReceivedEvent":
      return [{ kind: "decision", message }];
    case "HandoffMessage":
      return [{ kind: "handoff", to: text(message.message["target"]), text: message.content }];
    case "SelectSpeakerEvent":
    case "UserInputRequestedEvent":
    case "MemoryQueryEvent":
      return [];
    default: {
      const aside = message.source !== "user" && (message.shown === false || metadata(message)["drsai.aside"] !== undefined);
      return [{ kind: "text", message, aside }];
    }
  }
}

const same = (one: readonly Message[], other: readonly Message[]) => one.length === other.length && one.every((each, n) => each === other[n]);

/** The blocks of messages. One that is as it was `before` is that very object, so that it is not drawn again. */
export function blocksOf(messages: readonly Message[], before: ReadonlyMap<string, Block>): Block[] {
  const blocks: Block[] = [];
  const calls: Calls = new Map();
  for (const message of messages) {
    const parts = partsOf(message, calls);
    const isUser = message.source === "user" && message.type !== "UserInputReceivedEvent";
    // A result belongs to its call: of speakers that work at once, another may have spoken since.
    const returned = new Set(message.type === "ToolCallExecutionEvent" ? listed<ToolCall>(message.message["content"]).map((each) => each.call_id) : []);
    const asking = returned.size ? blocks.findLast((each) => each.parts.some((part) => part.kind === "call" && returned.has(part.id))) : undefined;
    let block = asking ?? blocks.at(-1);
    const goesOn = block && !isUser && !block.isUser && block.run === message.run_id && (block.source === message.source || !parts.length);
    if (!block || !goesOn) {
      if (!parts.length) continue;
      block = { key: `${message.seq}`, source: message.source, isUser, run: message.run_id ?? null, messages: [], parts: [], recalled: [] };
      blocks.push(block);
    }
    block.messages.push(message);
    block.parts.push(...parts);
    const names = text(metadata(message)["drsai.recalled"]).split(" ").filter(Boolean);
    if (names.length) block.recalled = [...new Set([...block.recalled, ...names])];
  }
  return blocks.map((block) => {
    const old = before.get(block.key);
    return old && same(old.messages, block.messages) ? old : block;
  });
}

export interface Citation {
  index: number;
  file_id: string;
  filename: string;
  page?: number;
}

/** What a message cites: the file of each mark 【…】 that its text has, and of those without one. */
export function citationsOf(message: Message): { marks: ReadonlyMap<string, number>; sources: readonly Citation[] } {
  let cited: Citation[] = [];
  try {
    cited = listed<Citation>(JSON.parse(text(metadata(message)["drsai.citations"]) || "[]"));
  } catch {
    // An import may have brought something else.
  }
  const sources: Citation[] = [];
  const marks = new Map<string, number>();
  const numbered = (each: Citation) => {
    const found = sources.findIndex((other) => other.file_id === each.file_id && other.page === each.page);
    return found < 0 ? sources.push(each) : found + 1;
  };
  for (const each of cited) {
    const number = numbered(each);
    // Places count characters as Python does: one for an emoji.
    const mark = /^【([0-9a-f]{8})】/.exec([...message.content].slice(each.index, each.index + 10).join(""));
    if (mark?.[1]) marks.set(mark[1], number);
  }
  return { marks, sources };
}
