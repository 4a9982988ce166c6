/** What the API answers with, by the names of the console. All is derived from the OpenAPI document. */
import type { paths } from "./schema";

type Answer<T> = T extends { responses: { 200: { content: { "application/json": infer Body } } } } ? Body : never;
/** What `GET path` answers with. */
export type Got<P extends keyof paths> = Answer<paths[P]["get"]>;
/** What `POST path` answers with. */
export type Posted<P extends keyof paths> = Answer<paths[P]["post"]>;
/** One entry of the list that `GET path` answers with. */
export type Listed<P extends keyof paths> = Got<P> extends { data: (infer Entry)[] } ? Entry : never;

export type Me = Got<"/v1/me">;
export type Scope = Me["scopes"][number];
export type Run = Got<"/v1/runs/{run_id}">;
export type AnyRun = Listed<"/v1/admin/runs">;
export type Status = Run["status"];
export type ThreadEntry = Listed<"/v1/threads">;
export type Thread = Got<"/v1/threads/{thread_id}">;
export type Message = Listed<"/v1/threads/{thread_id}/messages">;
export type Turn = Listed<"/v1/threads/{thread_id}/turns">;
export type Branch = Listed<"/v1/threads/{thread_id}/branches">;
export type Step = Listed<"/v1/runs/{run_id}/steps">;
export type Call = Listed<"/v1/runs/{run_id}/calls">;
export type CallInFull = Got<"/v1/runs/{run_id}/calls/{call_id}">;
/** What a thread waits for. */
export type Asked = Listed<"/v1/input-requests">;
export type Definition = Listed<"/v1/agents">;

/** A page of any list of the API. */
export interface Page<T> {
  data: T[];
  has_more: boolean;
  next: string | number | null;
}
