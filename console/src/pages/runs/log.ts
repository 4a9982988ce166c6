/** What a run tells, as it comes, and its model calls. */
import { useEffect, useRef, useState } from "preact/hooks";
import { api, data, follow, type Call, type ServerEvent } from "../../api";
import { allOf, paged, useLoaded, type Known } from "../../ui";

/** An event, and when this page heard it (Unix milliseconds). `pieces`: so many deltas are one entry. */
export interface Heard {
  id: string;
  at: number;
  event: ServerEvent;
  pieces: number;
}

export interface Log {
  heard: readonly Heard[];
  error: unknown;
}

const FLUSH = 120;
/** Entries that are kept: of a longer log the newest. */
const MOST = 20_000;

function isPiece(event: ServerEvent): boolean {
  return event.type === "delta" || event.type === "thought";
}

/** Where the entry stands that a piece goes on with, past what others say meanwhile; -1: it begins one. */
function placeOf(all: readonly Heard[], piece: ServerEvent): number {
  const place = all.findLastIndex(({ event }) => event["source"] === piece["source"] || event.type === "status");
  const last = all[place]?.event;
  return last?.type === piece.type && last["message_id"] === piece["message_id"] ? place : -1;
}

/** Follow a run's log. `live`: whether the run is under way; a log that has ended is read on when it is again. */
export function useLog(runId: string, live: boolean): Log {
  const [log, setLog] = useState<Log>({ heard: [], error: null });
  const heard = useRef<Heard[]>([]);
  const made = useRef(0);
  const wakes = useRef(0);
  const was = useRef(live);
  if (live && !was.current) wakes.current++;
  was.current = live;
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      setLog({ heard: [...heard.current], error: null });
    };
    const hear = (event: ServerEvent) => {
      const all = heard.current;
      const place = isPiece(event) ? placeOf(all, event) : -1;
      const last = all[place];
      if (last) all[place] = { ...last, pieces: last.pieces + 1, event: { ...event, text: `${String(last.event["text"])}${String(event["text"])}` } };
      else all.push({ id: `${made.current++}`, at: Date.now(), event, pieces: 1 });
      if (all.length > MOST) all.splice(0, all.length - MOST);
      timer ??= setTimeout(flush, FLUSH);
    };
    const after = heard.current.findLast((each) => each.event.id !== null)?.event.id ?? null;
    follow(`/v1/runs/${encodeURIComponent(runId)}/events`, hear, stop.signal, after).catch((error: unknown) => setLog((old) => ({ ...old, error })));
    return () => (stop.abort(), clearTimeout(timer));
  }, [runId, wakes.current]);
  return log;
}

/** Seconds between two looks at what calls there are. */
const PAUSE = 3;

/** The model calls of a run, in the order of their answers; while it is live, those that are answered meanwhile. */
export function useCalls(runId: string, live: boolean): Known<readonly Call[]> {
  const known = useRef<readonly Call[]>([]);
  const load = async () => {
    const before = known.current;
    const path = { run_id: runId };
    const found = await allOf((after) => data(api.GET("/v1/runs/{run_id}/calls", { params: { path, query: paged(after ?? before.at(-1)?.call_id ?? null) } })));
    if (found.length) known.current = [...before, ...found];
    return known.current;
  };
  const loaded = useLoaded(load, [runId, live], live ? PAUSE : 0);
  // Those that are known stay while they are asked for anew.
  return { ...loaded, value: known.current.length ? known.current : loaded.value };
}
