/** The one place that follows events: of a run, of a thread, and of an answer under way. */
import { EventSourceParserStream, type EventSourceMessage } from "eventsource-parser/stream";
import { ApiError, filled, online, request } from "./client";

/** An event, as docs/http.md tells them; `type` says which. */
export interface ServerEvent {
  type: string;
  id: string | null;
  [field: string]: unknown;
}

/** A tool call of a message, or its result, which has its `call_id`; an import may have brought anything. */
export type ToolCall = Partial<Record<"id" | "call_id" | "name" | "arguments" | "content" | "is_error", unknown>>;

/** A field of an event, or of a message, that is a text; "" where it is none. */
export const text = (value: unknown) => (typeof value === "string" ? value : "");

/** The events of an answer's body, as they come. A comment of the server's (`: ping`) is passed over. */
async function* eventsOf(response: Response): AsyncGenerator<EventSourceMessage> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()).getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

const FIRST_WAIT = 300;
const LONGEST_WAIT = 10_000;

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Follow a log (`/v1/runs/ID/events`, `/v1/threads/ID/events`) until it is over or `signal` is aborted.
 *
 * It connects again whenever the connection or the server is lost, after the last event that was read: no stored event
 * is heard twice or left out, whichever worker answers. Throws ApiError where the server refuses (404, 403). */
export async function follow(path: string, hear: (event: ServerEvent) => void, signal: AbortSignal, after: string | null = null): Promise<void> {
  let last = after;
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    try {
      const response = await request(path, { headers: filled({ "last-event-id": last }), signal });
      if (response.status === 204) return;
      for await (const { id = null, event = "message", data } of eventsOf(response)) {
        wait = FIRST_WAIT;
        last = id ?? last;
        hear({ type: event, ...(JSON.parse(data) as object), id });
      }
    } catch (error) {
      if (signal.aborted) return;
      const passing = !(error instanceof ApiError) || error.status === 0 || error.status === 429 || error.status >= 500;
      if (!passing) throw error;
      if (!(error instanceof ApiError)) online.value = false;
    }
    await sleep(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}
