/** What can be done to a thread: say something, go back, stop. */
import { api, data, post } from "../../api/client";
import type { Message, Run, Thread } from "../../api/shapes";
import { me } from "../../session";
import type { ThreadStore } from "./store";

export type ContentPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: "file"; file: { file_id: string } };
export type Content = string | ContentPart[];

/** A name for a request, so that repeating it makes nothing twice. `crypto.randomUUID` is not there over plain HTTP. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (each) => each.toString(16).padStart(2, "0")).join("");
}

export function contentOf(text: string, parts: readonly ContentPart[]): Content {
  return parts.length ? [...(text ? [{ type: "text" as const, text }] : []), ...parts] : text;
}

/** Have a team answer. The run belongs to the server from here on: whoever looks follows its thread. */
export async function ask(model: string, content: Content, key: string, thread: { id: string; owner: string | null } | null = null): Promise<Run> {
  const owner = thread?.owner && thread.owner !== me.value?.user ? { thread_owner: thread.owner } : {};
  const body = { model, background: true, messages: [{ role: "user", content }], ...(thread ? { thread_id: thread.id, ...owner } : {}) };
  return (await (await post("/v1/chat/completions", body, { headers: { "idempotency-key": key } })).json()) as Run;
}

export async function say(store: ThreadStore, model: string, content: Content, key: string): Promise<void> {
  const text = typeof content === "string" ? content : content.map((each) => (each.type === "text" ? each.text : "")).join("");
  store.pending.value = [...store.pending.value.filter((each) => each.key !== key), { key, text, run: null }];
  try {
    const run = await ask(model, content, key, store);
    const begun = store.messages.value.some((each) => each.run_id === run.run_id);
    store.pending.value = store.pending.value.flatMap((each) => (each.key !== key ? [each] : begun ? [] : [{ ...each, run: run.run_id }]));
    await store.refresh();
  } catch (error) {
    store.pending.value = store.pending.value.filter((each) => each.key !== key);
    throw error;
  }
}

/** Go back in a thread: before a user's message, or to the end of a branch. What is left stays on its branch. */
export async function rewind(store: ThreadStore, place: { at: number } | { branch: number }): Promise<void> {
  const path = `/v1/threads/${encodeURIComponent(store.id)}/rewind${store.owner ? `?owner=${encodeURIComponent(store.owner)}` : ""}`;
  await post(path, place);
  await store.refresh();
}

export async function fork(store: ThreadStore, at: number): Promise<Thread> {
  const path = `/v1/threads/${encodeURIComponent(store.id)}/fork${store.owner ? `?owner=${encodeURIComponent(store.owner)}` : ""}`;
  return (await (await post(path, { at })).json()) as Thread;
}

export async function steer(store: ThreadStore, what: "cancel" | "retry" | "resume"): Promise<void> {
  const asked = { params: store.named, body: {} };
  if (what === "cancel") await data(api.POST("/v1/threads/{thread_id}/cancel", asked));
  else if (what === "retry") await data(api.POST("/v1/threads/{thread_id}/retry", asked));
  else await data(api.POST("/v1/threads/{thread_id}/resume", asked));
  await store.refresh();
}

/** What a user's message was made of, to be sent again: its text, its images, and the files that came with it. */
export function resent(message: Message, text: string): Content {
  const parts = message.message["content"];
  const images = Array.isArray(parts) ? parts.filter((each): each is { data: string } => typeof each === "object" && each !== null && "data" in each) : [];
  return contentOf(
    text,
    images.map(({ data: bytes }) => ({ type: "image_url", image_url: { url: imageUrl(bytes) } })),
  );
}

const SIGNATURES = [
  ["/9j/", "jpeg"],
  ["R0lG", "gif"],
  ["UklG", "webp"],
] as const;

/** An image's base64 text as a `data:` URL, of the kind that its first bytes tell. */
export function imageUrl(bytes: string): string {
  const kind = SIGNATURES.find(([start]) => bytes.startsWith(start))?.[1] ?? "png";
  return `data:image/${kind};base64,${bytes}`;
}
