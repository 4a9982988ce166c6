/** One thread as the page knows it: its messages, what is being said, and what it waits for. */
import { batch, computed, signal } from "@preact/signals";
import { api, data, filled, follow, text, type Branch, type Message, type Page, type Scope, type ServerEvent, type Thread } from "../../api";
import { may } from "../../session";
import { BLANK, pathOf, type Written } from "./send";
import { branchesOf, messagesOf, partingsOf } from "./branches";

/** Something that is said or done at this moment, and not stored yet. */
export interface Draft {
  kind: "text" | "thought" | "call";
  source: string;
  id: string | null;
  text: string;
  name?: string;
  result?: string | null;
  failed?: boolean;
}

/** A message that was sent and is not in the thread yet. */
export interface Pending {
  key: string;
  text: string;
  run: string | null;
}

/** What one may do in a thread: each right has those before it. */
export type Right = "read" | "answer" | "write";

const PAGE = 100;
/** Branches among which the ways from one to another are found in a moment. */
const MOST_BRANCHES = 1000;
const LIVE = new Set(["running", "created"]);

function heard(event: ServerEvent): Message {
  const dump = (event["message"] ?? {}) as Record<string, unknown>;
  const at = Date.parse(text(dump["created_at"]));
  return {
    id: text(dump["id"]) || null,
    object: "thread.message",
    seq: event["seq"] as number,
    source: text(event["source"]),
    type: text(event["message_type"]),
    content: text(event["content"]),
    created_at: (Number.isNaN(at) ? Date.now() : at) / 1000,
    run_id: text(event["run_id"]),
    shown: event["shown"] as boolean | null,
    files: (event["files"] ?? []) as NonNullable<Message["files"]>,
    message: dump,
  };
}

export class ThreadStore {
  readonly thread = signal<Thread | null>(null);
  readonly right = computed<Right>(() => (this.thread.value?.right ?? "write") as Right);
  readonly messages = signal<readonly Message[]>([]);
  readonly drafts = signal<readonly Draft[]>([]);
  readonly pending = signal<readonly Pending[]>([]);
  /** What is being written to it. */
  readonly written = signal<Written>(BLANK);
  readonly error = signal<unknown>(null);
  readonly hasEarlier = signal(false);
  readonly loading = signal(true);
  /** Which try of the run this is: above 1, a worker was lost. */
  readonly attempt = signal(1);
  /** None of a thread that has too many to show beside its messages. */
  readonly branches = signal<readonly Branch[]>([]);
  readonly partings = computed(() => partingsOf(this.branches.value, this.branch ?? this.thread.value?.branch ?? 0, this.messages.value, this.hasEarlier.value));
  readonly isLive = computed(() => this.thread.value !== null && this.thread.value.run_id !== null && LIVE.has(this.thread.value.status));
  private readonly ended = new AbortController();
  private drawn: readonly Draft[] = [];
  private arrived: Message[] = [];
  private drawing = false;
  private asked = 0;
  private generation = 0;

  /** `branch`: one that was left, to be read only; null: the thread as it goes on. */
  constructor(
    readonly id: string,
    readonly owner: string | null,
    readonly branch: number | null,
  ) {}

  /** What names the thread in requests. */
  get named() {
    return { path: { thread_id: this.id }, query: filled({ owner: this.owner }) };
  }

  /** Whether one may change the thread, by one's own scopes and its owner's word. */
  allows(...scopes: Scope[]): boolean {
    return this.right.value === "write" && may(...scopes);
  }

  async begin(): Promise<void> {
    try {
      const thread = await data(api.GET("/v1/threads/{thread_id}", { params: this.named }));
      this.thread.value = thread;
      await this.loadNewest(thread);
      if (this.branch !== null || this.ended.signal.aborted) return;
      await follow(pathOf(this, "events"), (event) => this.hear(event), this.ended.signal, thread.position ?? null);
    } catch (error) {
      if (!this.ended.signal.aborted) this.error.value = error;
    } finally {
      this.loading.value = false;
    }
  }

  end(): void {
    this.ended.abort();
  }

  /** Read anew what the thread is and waits for; its messages, too, where it has gone to another branch. What cannot be
   * read now, the next look finds. */
  async refresh(): Promise<void> {
    const mine = ++this.asked;
    try {
      const thread = await data(api.GET("/v1/threads/{thread_id}", { params: this.named }));
      if (mine !== this.asked) return;
      const moved = this.thread.value !== null && thread.branch !== this.thread.value.branch;
      if (moved && this.branch === null) await this.loadNewest(thread);
      if (mine === this.asked) this.thread.value = thread;
    } catch {
      // That there is no server is told at the head of the page.
    }
  }

  private async loadNewest({ branch, message_count: count }: Thread): Promise<void> {
    this.generation++;
    const [[rows, more], branches] = await Promise.all([this.before(count + 1), this.loadBranches(branch)]);
    batch(() => {
      this.branches.value = branches;
      // What was heard meanwhile belongs to it, too.
      this.messages.value = [...rows, ...[...this.messages.value, ...this.arrived].filter((each) => each.seq > count)];
      this.arrived = [];
      this.wait();
      this.drafts.value = this.drawn;
      this.hasEarlier.value = more;
      this.loading.value = false;
    });
  }

  /** Of what was sent, what stands among the messages waits no more. */
  wait(pending = this.pending.value): void {
    const runs = new Set(pending.length ? this.messages.value.map((each) => each.run_id) : []);
    this.pending.value = pending.filter(({ run }) => run === null || !runs.has(run));
  }

  private async loadBranches(current: Thread["branch"]): Promise<readonly Branch[]> {
    const found = current === null ? [] : await branchesOf(this, MOST_BRANCHES + 1).catch(() => []);
    return found.length > MOST_BRANCHES ? [] : found;
  }

  async loadEarlier(): Promise<void> {
    const first = this.messages.value[0];
    if (this.loading.value || !first) return;
    this.loading.value = true;
    const generation = this.generation;
    try {
      const [rows, more] = await this.before(first.seq);
      if (generation !== this.generation) return;
      batch(() => {
        this.messages.value = [...rows, ...this.messages.value];
        this.hasEarlier.value = more;
      });
    } finally {
      this.loading.value = false;
    }
  }

  /** The messages before `seq`, about a page of them, and whether there are more. Numbers that a branch lacks make a
   * page short, so it looks farther back until it finds many. */
  private async before(seq: number): Promise<[Message[], boolean]> {
    for (let span = PAGE; ; span *= 4) {
      const from = Math.max(0, seq - 1 - span);
      const found: Message[] = [];
      let after: number | null = from;
      while (after !== null && after < seq - 1) {
        const page: Page<Message> = await messagesOf(this, this.branch, after);
        found.push(...page.data.filter((each) => each.seq < seq));
        after = page.has_more ? (page.data.at(-1)?.seq ?? null) : null;
      }
      if (found.length > PAGE / 4 || from === 0) return [found, from > 0];
    }
  }

  private hear(event: ServerEvent): void {
    const source = text(event["source"]);
    switch (event.type) {
      case "status":
        // What was said since the last message is void: the turn is repeated.
        this.drawn = [];
        this.attempt.value = event["attempt"] as number;
        void this.refresh();
        break;
      case "delta":
      case "thought":
        this.say(event.type === "delta" ? "text" : "thought", source, text(event["message_id"]) || null, text(event["text"]));
        break;
      case "tool_call":
        this.drawn = [...this.drawn, { kind: "call", source, id: text(event["call_id"]), name: text(event["name"]), text: text(event["arguments"]), result: null }];
        break;
      case "tool_partial":
        this.returned(event, text(event["content"]), false);
        break;
      case "tool_result":
        this.returned(event, text(event["result"]), event["is_error"] === true);
        break;
      case "message":
        this.arrived.push(heard(event));
        this.drawn = this.drawn.filter((each) => each.source !== source);
        break;
      case "end":
        this.drawn = [];
        void this.refresh();
        break;
      case "input_request":
      case "queued":
        void this.refresh();
    }
    this.draw();
  }

  private say(kind: "text" | "thought", source: string, id: string | null, piece: string): void {
    const place = this.drawn.findLastIndex((each) => each.source === source);
    const last = this.drawn[place];
    if (last?.kind === kind && last.id === id) this.drawn = this.drawn.with(place, { ...last, text: last.text + piece });
    else this.drawn = [...this.drawn, { kind, source, id, text: piece }];
  }

  private returned(event: ServerEvent, result: string, failed: boolean): void {
    this.drawn = this.drawn.map((each) => (each.kind === "call" && each.id === event["call_id"] ? { ...each, result, failed } : each));
  }

  /** Show what was heard, at most once a frame: an answer comes in hundreds of pieces a second. */
  private draw(): void {
    if (this.drawing) return;
    this.drawing = true;
    const show = () => {
      this.drawing = false;
      const last = this.messages.value.at(-1)?.seq ?? 0;
      const fresh = this.arrived.filter((each) => each.seq > last);
      this.arrived = [];
      batch(() => {
        this.drafts.value = this.drawn;
        if (!fresh.length) return;
        this.messages.value = [...this.messages.value, ...fresh];
        this.wait();
      });
    };
    if (document.hidden) setTimeout(show, 250);
    else requestAnimationFrame(show);
  }
}
