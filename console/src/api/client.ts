/** The one place that fetches: who asks, what went wrong, and whether the server can be reached. */
import { signal } from "@preact/signals";
import createClient from "openapi-fetch";
import { key } from "./keyring";
import { t } from "../words";
import type { paths } from "./schema";

/** The server's root: one above the page's <base>. */
const root = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** Whether the last request reached the server. */
export const online = signal(true);
/** Why whoever is signed in must sign in again; null: they need not. */
export const refused = signal<ApiError | null>(null);
let waiting: ((again: boolean) => void)[] = [];

/** End the wait of what was refused: it is asked `again`, where the same user has signed in, or fails. */
export function admit(again: boolean): void {
  refused.value = null;
  for (const go of waiting.splice(0)) go(again);
}

/** What a server said instead of an answer. `status` is 0 where it said nothing. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string | null = null,
    readonly param: string | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
  }
}

interface ErrorBody {
  error?: { message?: string; code?: string; param?: string | null };
}

async function errorOf(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => null)) as ErrorBody | null;
  const told = body?.error;
  return new ApiError(
    told?.message ?? `${response.status} ${response.statusText}`,
    response.status,
    told?.code ?? null,
    told?.param ?? null,
    response.headers.get("x-request-id"),
  );
}

/** Fetch `input`, as whoever is signed in where it does not say who asks. Throws ApiError for every answer that is none. */
export async function sendOnce(input: Request): Promise<Response> {
  if (key.value !== null && !input.headers.has("authorization")) input.headers.set("authorization", `Bearer ${key.value}`);
  let response: Response;
  try {
    response = await fetch(input);
  } catch (error) {
    if (input.signal.aborted) throw error;
    online.value = false;
    throw new ApiError(t("state.offline"), 0, "offline");
  }
  online.value = true;
  if (response.ok) return response;
  throw await errorOf(response);
}

/** The same for whoever is known. Where their key has expired, it waits until they have signed in again, and asks anew:
 * a refused request has done nothing. */
async function send(input: Request): Promise<Response> {
  for (;;) {
    const token = key.value;
    try {
      return await sendOnce(input.clone());
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401 || token !== key.value) throw error;
      refused.value = error;
      if (!(await new Promise<boolean>((go) => waiting.push(go)))) throw error;
    }
  }
}

/** The API, typed by its OpenAPI document: `await data(api.GET("/v1/runs/{run_id}", { params: { path: { run_id } } }))`. */
export const api = createClient<paths>({ baseUrl: root, fetch: send });

/** The body of an answer. `send` has thrown where there is none. */
export async function data<T>(asked: Promise<{ data?: T }>): Promise<T> {
  return (await asked).data as T;
}

/** What has a value, of what a request may say: the rest is left out of it. */
export function filled<T extends object>(given: T) {
  const values = Object.entries(given).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return Object.fromEntries(values) as { [Name in keyof T]?: Exclude<T[Name], "" | null | undefined> };
}

/** Ask for a path that the types do not know, or whose answer is no JSON. */
export const request = (path: string, init: RequestInit = {}) => send(new Request(root + path, init));

/** Post a JSON body to a path that is put together, or takes headers of its own; returns the answer's. */
export async function post<T>(path: string, body: unknown, headers: Record<string, string> = {}): Promise<T> {
  const init = { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers } };
  return (await (await request(path, init)).json()) as T;
}

/** Store a file, for what it is meant for. Throws ApiError. A second try with the same `key` stores nothing twice. */
export async function upload(file: File, purpose: "assistants" | "user_data", key?: string): Promise<string> {
  const body = new FormData();
  body.set("purpose", purpose);
  body.set("file", file, file.name);
  const response = await request("/v1/files", { method: "POST", body, headers: filled({ "idempotency-key": key }) });
  return ((await response.json()) as { id: string }).id;
}

/** Get bytes, as of a file, as whoever is signed in: an <img> or a link alone would send no key. */
export async function blob(path: string, init?: RequestInit): Promise<Blob> {
  return await (await request(path, init)).blob();
}
