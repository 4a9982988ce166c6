/** A run's place in its thread: its turns, its branch, its messages. */
import { ApiError, api, data, filled, type Run, type Turn } from "../../api";
import { branchesOf } from "../chat/branches";

const PAGE = 100;

/** The thread of a run, which is one's own. */
export const threadOf = (run: Run) => ({ id: run.thread_id, owner: null });

/** The branch that a run is on; null: its thread has one only. */
export async function branchOf(run: Run): Promise<number | null> {
  const branches = await branchesOf(threadOf(run));
  if (branches.length < 2) return null;
  return (branches.find((each) => each.first_seq <= run.first_seq && run.first_seq <= each.last_seq) ?? branches.find((each) => each.is_current))?.number ?? null;
}

/** Null in place of an answer that there is not. Throws every other error. */
export function missing(error: unknown): null {
  if (error instanceof ApiError && error.status === 404) return null;
  throw error;
}

export interface Past {
  turns: readonly Turn[];
  /** The turn before the first of them; 0: the thread's beginning. */
  before: number;
}

/** The turns of a run. They are looked for from the first turn on of which a model call is known. */
export async function pastOf(run: Run): Promise<Past> {
  const path = { thread_id: run.thread_id };
  const [branch, calls] = await Promise.all([
    branchOf(run),
    // Who reads a shared thread is not shown its calls.
    data(api.GET("/v1/runs/{run_id}/calls", { params: { path: { run_id: run.run_id }, query: { limit: 1 } } })).catch(missing),
  ]);
  let after = Math.max(0, (calls?.data[0]?.turn ?? 0) - 3);
  const past: { turns: Turn[]; before: number } = { turns: [], before: 0 };
  for (;;) {
    const page = await data(api.GET("/v1/threads/{thread_id}/turns", { params: { path, query: { after, limit: PAGE, ...filled({ branch }) } } }));
    for (const turn of page.data) {
      if (turn.run_id === run.run_id) past.turns.push(turn);
      else if (past.turns.length) return past;
      else past.before = turn.turn;
    }
    if (page.next === null) return past;
    after = Number(page.next);
  }
}
