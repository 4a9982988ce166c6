/** What a run did, as bars on a line of time: turns, model calls, calls of tools, messages, attempts. */
import { text, type Call, type Run, type Step, type ToolCall, type Turn } from "../../api";
import { jsonOf } from "../../ui";
import type { Heard } from "./log";

export type Kind = "attempt" | "turn" | "input" | "model" | "tool" | "said" | "thought" | "question" | "error" | "end";

export interface Bar {
  id: string;
  kind: Kind;
  /** A tool, a model, a type of messages, a number. */
  name: string;
  agent: string;
  /** Unix milliseconds; `until` null: under way. */
  from: number;
  until: number | null;
  failed: boolean;
  /** Cut off with its worker: it was, or is, done again. */
  lost: boolean;
  text: string;
  seq: number;
  turn: number | null;
  tokens: readonly [number, number] | null;
  detail: unknown;
}

interface Dump {
  created_at?: string;
  content?: unknown;
}
const endOf = (call: Call) => call.answered_ms;
const epochOf = (id: string | null, place: number) => Number(id?.split("-")[place] ?? 0);

class Timeline {
  readonly bars: Bar[] = [];
  private readonly tools = new Map<string, Bar>();
  private readonly pieces = new Map<string, Bar>();
  private readonly attempts = new Map<number, Bar>();

  constructor(
    private at: number,
    private readonly calls: readonly Call[],
  ) {}

  private add(given: Pick<Bar, "id" | "kind" | "from"> & Partial<Bar>): Bar {
    const made = { name: "", agent: "", until: given.from, failed: false, lost: false, text: "", seq: 0, turn: null, tokens: null, detail: null, ...given };
    this.bars.push(made);
    return made;
  }

  hear({ id, at, event }: Heard): void {
    const agent = text(event["source"]);
    const live = Math.max(at, this.at);
    switch (event.type) {
      case "status":
        this.cutOff();
        this.attempt(epochOf(event.id, 1), String(event["attempt"] ?? ""), event);
        break;
      case "message":
        this.message(id, event as unknown as { seq: number; message: Dump; message_type: string; content: string }, agent);
        break;
      case "delta": {
        const key = text(event["message_id"]) || agent;
        const known = this.pieces.get(key);
        if (known) known.text += text(event["text"]);
        else this.pieces.set(key, this.add({ id, kind: "said", agent, from: live, until: null, text: text(event["text"]), detail: event }));
        break;
      }
      case "tool_call":
        this.call({ id: text(event["call_id"]), name: text(event["name"]), arguments: text(event["arguments"]) }, agent, live, 0);
        break;
      case "tool_result":
        this.result({ call_id: text(event["call_id"]), content: text(event["result"]), is_error: event["is_error"] === true }, live, event);
        break;
      case "input_request":
        this.add({ id, kind: "question", from: this.at, text: text((event["input_request"] as { prompt?: string } | null)?.prompt), detail: event });
        break;
      case "error":
        if (event.id !== null) this.add({ id, kind: "error", from: this.at, failed: true, text: text((event["error"] as { message?: string } | null)?.message), detail: event });
        break;
      case "end":
        this.cutOff();
        this.add({ id, kind: "end", from: this.at, name: text(event["status"]), text: text(event["stop_reason"]), detail: event });
    }
  }

  private message(id: string, event: { seq: number; message: Dump; message_type: string; content: string }, agent: string): void {
    const when = Date.parse(event.message.created_at ?? "") || this.at;
    const before = this.at;
    this.at = Math.max(this.at, when);
    for (const [key, piece] of this.pieces)
      if (piece.agent === agent) {
        this.pieces.delete(key);
        this.bars.splice(this.bars.indexOf(piece), 1);
      }
    const content = event.message.content;
    const calls = Array.isArray(content) ? (content as ToolCall[]) : [];
    if (event.message_type === "ToolCallRequestEvent") for (const call of calls) this.call(call, agent, when, event.seq);
    else if (event.message_type === "ToolCallExecutionEvent") for (const call of calls) this.result(call, when, call, event.seq, before);
    else {
      const kind = event.message_type === "ThoughtEvent" ? "thought" : agent === "user" ? "input" : "said";
      this.add({ id, kind, name: event.message_type, agent, from: when, text: event.content, seq: event.seq, detail: event });
    }
  }

  private call(call: ToolCall, agent: string, from: number, seq: number): void {
    const key = text(call.id);
    const known = this.tools.get(key);
    if (known && !known.lost) Object.assign(known, seq ? { from, seq } : {});
    else this.tools.set(key, this.add({ id: `tool ${key} ${this.bars.length}`, kind: "tool", name: text(call.name), agent, from, until: null, text: text(call.arguments), seq, detail: { arguments: jsonOf(text(call.arguments) || "null") } }));
  }

  private result(call: ToolCall, until: number, detail: unknown, seq = 0, from = until): void {
    const key = text(call.call_id);
    const known = this.tools.get(key) ?? this.add({ id: `tool ${key} ${this.bars.length}`, kind: "tool", name: text(call.name), from, seq });
    known.until = Math.max(until, known.from);
    known.failed = call.is_error === true;
    known.detail = { ...(known.detail as object | null), result: detail };
  }

  /** What was told and not stored is void: another worker does it again. */
  private cutOff(): void {
    for (const each of [...this.pieces.values(), ...this.tools.values()])
      if (each.until === null) {
        each.until = Math.max(each.from, this.at);
        each.lost = true;
      }
    this.pieces.clear();
  }

  private attempt(epoch: number, name: string, detail: unknown): void {
    // The log tells the newest attempt of a run in front of all its messages: its place is after the calls before it.
    const before = this.calls.filter((call) => epochOf(call.call_id, 0) < epoch);
    const from = Math.max(this.at, ...before.slice(-50).map(endOf));
    this.attempts.set(epoch, this.add({ id: `attempt ${epoch}`, kind: "attempt", name, from, detail }));
  }

  addCalls(): void {
    for (const call of this.calls) {
      const epoch = epochOf(call.call_id, 0);
      const from = endOf(call) - call.seconds * 1000;
      if (!this.attempts.has(epoch)) this.attempts.set(epoch, this.add({ id: `attempt ${epoch}`, kind: "attempt", from: from - 1 }));
      this.add({ id: `call ${call.call_id}`, kind: "model", name: call.model ?? "", agent: call.agent ?? "", from, until: endOf(call), turn: call.turn ?? null, tokens: [call.prompt_tokens, call.completion_tokens], detail: call });
    }
  }

  /** Calls of tools that another worker has under way: its log tells them when they are stored. */
  addSteps(steps: readonly Step[]): void {
    for (const step of steps)
      if (step.tool && !step.is_stored && !this.tools.has(step.call_id ?? ""))
        this.add({ id: `step ${step.position}`, kind: "tool", name: step.tool, agent: step.source ?? "", from: (step.started_at ?? 0) * 1000, until: step.is_over ? (step.finished_at ?? 0) * 1000 : null, failed: step.is_error, text: step.input ?? "", detail: step });
  }

  addTurns(turns: readonly Turn[]): void {
    const of = new Map<number, Bar[]>();
    for (const each of this.bars) {
      each.turn ??= each.seq ? (turns.find((turn) => turn.first_seq <= each.seq && each.seq <= turn.last_seq)?.turn ?? null) : null;
      if (each.turn === null) continue;
      const parts = of.get(each.turn);
      if (parts) parts.push(each);
      else of.set(each.turn, [each]);
    }
    for (const turn of turns) {
      const parts = of.get(turn.turn);
      if (!parts) continue;
      const from = Math.min(...parts.map((each) => each.from)) - 0.5;
      const until = Math.max(...parts.map((each) => each.until ?? each.from));
      this.add({ id: `turn ${turn.turn}`, kind: "turn", name: String(turn.turn), agent: turn.source ?? "", from, until, turn: turn.turn, detail: turn });
    }
  }
}

export function timelineOf(run: Run, heard: readonly Heard[], calls: readonly Call[], steps: readonly Step[], turns: readonly Turn[]): Bar[] {
  const made = new Timeline((run.started_at ?? run.created_at) * 1000, calls);
  for (const each of heard) made.hear(each);
  made.addCalls();
  made.addSteps(steps);
  made.addTurns(turns);
  return made.bars.sort((a, b) => a.from - b.from);
}

/** A break: time without a bar, drawn shorter than it was. */
interface Part {
  from: number;
  /** Where it begins, drawn. */
  at: number;
  rate: number;
}

/** Where a moment is drawn, 0 to 1. Time in which nothing happened, such as a person's, takes little room. */
export function scaleOf(bars: readonly Bar[], now: number): (at: number) => number {
  const spans: [number, number][] = [];
  for (const each of bars) {
    const [from, until] = [each.from, each.until ?? now];
    const last = spans.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], until);
    else spans.push([from, until]);
  }
  const busy = spans.reduce((sum, [from, until]) => sum + until - from, 0);
  const most = Math.max(500, busy / 10);
  const parts: Part[] = [];
  let at = 0;
  spans.forEach(([from, until], n) => {
    parts.push({ from, at, rate: 1 });
    at += until - from;
    const gap = (spans[n + 1]?.[0] ?? until) - until;
    parts.push({ from: until, at, rate: gap > most ? most / gap : 1 });
    at += Math.min(gap, most);
  });
  const whole = Math.max(at, 1);
  return (moment) => {
    let [low, high] = [0, parts.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((parts[middle]?.from ?? 0) <= moment) low = middle;
      else high = middle - 1;
    }
    const part = parts[low];
    return part ? Math.min(1, Math.max(0, (part.at + (moment - part.from) * part.rate) / whole)) : 0;
  };
}
