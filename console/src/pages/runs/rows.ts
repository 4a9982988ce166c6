/** Runs as the list shows them: one's own, or, for operators, those of all users of the tenant. */
import { api, data, filled, post, type AnyRun, type Page, type Posted, type Run, type Status } from "../../api";
import type { paths } from "../../api/schema";
import { may } from "../../session";
import { eachOf, messageOf, paged, type After } from "../../ui";
import { t } from "../../words";

export type Verb = "cancel" | "pause" | "resume" | "retry";
export const VERBS: readonly Verb[] = ["cancel", "pause", "resume", "retry"];
/** The statuses of runs that a verb changes. */
const CHANGES: Record<Verb, readonly Status[]> = { cancel: ["created", "running", "awaiting_input", "paused"], pause: ["running"], resume: ["paused"], retry: ["error"] };
export const can = (verb: Verb, status: Status) => CHANGES[verb].includes(status);
/** Whether something may still happen by itself. */
export const isLive = (status: Status) => status === "created" || status === "running";
export const isOver = (status: Status) => status === "completed" || status === "stopped" || status === "error";

/** A run as a list has it. `since`: of one that runs, from when on its duration is counted. */
export type Row = (Run | AnyRun) & { since: number | null };

export function rowOf(run: Run | AnyRun): Row {
  // The list of all runs counts to now; one's own says what is stored.
  const since = "tenant" in run ? Date.now() / 1000 - run.seconds : (run.started_at ?? run.created_at);
  return { ...run, since: run.status === "running" ? since : null };
}

/** Whose run it is; "": one's own. */
export const ownerOf = (run: Run | AnyRun) => ("user" in run ? run.user : "");

/** What can be looked for, by the names that it has in the address and in the API. */
export const FILTERS = ["status", "team", "user", "thread", "error_code", "error", "from", "to", "slower_than", "text", "tool"] as const;
export type Filter = (typeof FILTERS)[number];
export type Filters = Partial<Record<Filter | "order", string>>;
/** Whether it is looked for what was said: that reads messages, and many runs are not changed at once by it. */
export const bySaid = ({ text, tool }: Filters) => text !== undefined || tool !== undefined;
const NUMBERS: readonly string[] = ["from", "to", "slower_than"];
type Wanted = NonNullable<paths["/v1/admin/runs"]["get"]["parameters"]["query"]>;

/** The filters of an address, as far as whoever asks may use them. */
export function filtersOf(query: URLSearchParams): Filters {
  const known = may("runs:admin") ? [...FILTERS, "order"] : ["status"];
  return Object.fromEntries([...query].filter(([name, value]) => known.includes(name) && value)) as Filters;
}

export function wanted(filters: Filters): Wanted {
  return Object.fromEntries(Object.entries(filters).map(([name, value]) => [name, NUMBERS.includes(name) ? Number(value) : value])) as Wanted;
}

export async function pageOf(filters: Filters, after: After): Promise<Page<Row>> {
  const place = paged(after);
  const found: Page<Run | AnyRun> = may("runs:admin")
    ? await data(api.GET("/v1/admin/runs", { params: { query: { ...wanted(filters), ...place } } }))
    : await data(api.GET("/v1/runs", { params: { query: { ...place, ...filled({ status: filters.status as Status | undefined }) } } }));
  return { ...found, data: found.data.map(rowOf) };
}

/** Whether somebody may do that with runs, be it their own or those of others. */
export const mayDo = (verb: Verb) => may("runs:admin") || may(verb === "cancel" ? "runs:cancel" : "threads:write");

/** Do something with a run, as an operator or as its owner. Throws ApiError where the server refuses. */
export async function steer(verb: Verb, run: Pick<Row, "id" | "thread_id">): Promise<void> {
  const id = encodeURIComponent(run.id);
  if (may("runs:admin")) await post(`/v1/admin/runs/${id}/${verb}`, {});
  else if (verb === "cancel") await post(`/v1/runs/${id}/cancel`, {});
  else {
    // A thread's own verbs are about its newest run.
    const newest = await data(api.GET("/v1/threads/{thread_id}/runs", { params: { path: { thread_id: run.thread_id }, query: { limit: 1 } } }));
    if (newest.data[0]?.run_id !== run.id) throw new Error(t("runs.notNewest"));
    await post(`/v1/threads/${encodeURIComponent(run.thread_id)}/${verb}`, {});
  }
}

type Steered = Posted<"/v1/admin/runs/cancel">;
export type Outcome = Pick<Steered["data"][number], "id" | "team" | "outcome" | "reason">;

/** How many runs were found, and some of them or all. */
export interface Found extends Pick<Steered, "found"> {
  data: readonly Outcome[];
}

/** Do something with all runs that are wanted, up to 1,000; `dry`: only count and list them. */
export async function steerAll(verb: Verb, filters: Filters, dry: boolean): Promise<Found> {
  const { order: _, ...of } = wanted(filters);
  return await post<Found>(`/v1/admin/runs/${verb}`, { ...of, limit: 1000, dry_run: dry });
}

const AT_ONCE = 8;

/** Do something with each of these runs, and tell what became of each. */
export async function steerEach(verb: Verb, rows: readonly Row[]): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  await eachOf(rows, AT_ONCE, async (row, place) => {
    const told = { id: row.id, team: row.team };
    try {
      await steer(verb, row);
      outcomes[place] = { ...told, outcome: row.status === "running" ? "asked" : "done", reason: null };
    } catch (error) {
      outcomes[place] = { ...told, outcome: "refused", reason: messageOf(error) };
    }
  });
  return outcomes;
}
