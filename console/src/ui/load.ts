/** Hooks that load: one thing, or a list page by page. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { Page } from "../api/shapes";

/** The place in a list after which a page begins; null: the beginning. */
export type After = string | number | null;

/** What asks for the page of a list after another one. */
export function paged(after: After, limit = 100): { limit: number; after?: string } {
  return after === null ? { limit } : { limit, after: String(after) };
}

/** All entries of a list that is not long; of one that is, pages until there are `most`. */
export async function allOf<T>(page: (after: After) => Promise<Page<T>>, most = Infinity): Promise<T[]> {
  const rows: T[] = [];
  let after: After = null;
  do {
    const made: Page<T> = await page(after);
    rows.push(...made.data);
    after = made.next;
  } while (after !== null && rows.length < most);
  return rows;
}

/** Do something with each of many things, `atOnce` at a time. */
export async function eachOf<T>(things: readonly T[], atOnce: number, work: (thing: T, place: number) => Promise<void>): Promise<void> {
  const left = things.entries();
  const worker = async () => {
    for (const [place, thing] of left) await work(thing, place);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

/** Asks, and keeps what went wrong. What is asked later makes an earlier answer void. */
function useAsking() {
  const [error, setError] = useState<unknown>(null);
  const [loading, setLoading] = useState(true);
  const newest = useRef(0);
  const busy = useRef(false);
  const ask = useCallback(async <T>(load: () => Promise<T>, put: (made: T) => void) => {
    const mine = ++newest.current;
    const isNewest = () => mine === newest.current;
    setLoading((busy.current = true));
    try {
      const made = await load();
      if (!isNewest()) return;
      put(made);
      setError(null);
    } catch (failed) {
      if (isNewest()) setError(failed);
    } finally {
      if (isNewest()) setLoading((busy.current = false));
    }
  }, []);
  const forget = useCallback(() => void newest.current++, []);
  return { error, loading, busy, ask, forget };
}

/** Begin anew when `start` is another, and look again every `seconds` while the page is looked at. */
function useRepeated(start: () => void, again: () => void, stop: () => void, seconds: number): void {
  useEffect(() => (start(), stop), [start]);
  useEffect(() => {
    const timer = seconds ? setInterval(() => document.hidden || again(), seconds * 1000) : undefined;
    return () => clearInterval(timer);
  }, [again, seconds]);
}

/** What was asked for, as far as it is known. */
export interface Known<T> {
  value: T | null;
  error: unknown;
  loading: boolean;
  reload: () => void;
}

export interface Loaded<T> extends Known<T> {
  set: (value: T) => void;
}

/** Load something when `keys` change, and again every `seconds`. What was loaded stays while it is loaded again. */
export function useLoaded<T>(load: () => Promise<T>, keys: readonly unknown[], seconds = 0): Loaded<T> {
  const [value, set] = useState<T | null>(null);
  const { error, loading, busy, ask, forget } = useAsking();
  const reload = useCallback(() => void ask(load, (made) => set(() => made)), keys);
  const refresh = useCallback(() => busy.current || reload(), [reload]);
  const begin = useCallback(() => (set(null), reload()), [reload]);
  useRepeated(begin, refresh, forget, seconds);
  return { value, error, loading, reload, set };
}

export interface Listing<T> {
  rows: readonly T[];
  error: unknown;
  loading: boolean;
  hasMore: boolean;
  more: () => void;
  reload: () => void;
  change: (change: (rows: readonly T[]) => readonly T[]) => void;
}

/** A list that is loaded page by page, anew when `keys` change. With `seconds`, its first page is looked at again, and
 * what is new or has changed (by `id`) is put in place: what was scrolled to stays where it is. */
export function useListing<T extends { id: string | null }>(page: (after: After) => Promise<Page<T>>, keys: readonly unknown[], seconds = 0): Listing<T> {
  const [rows, setRows] = useState<readonly T[]>([]);
  const [next, setNext] = useState<After>(null);
  const { error, loading, busy, ask, forget } = useAsking();
  const first = useCallback((put: (made: Page<T>) => void) => void ask(() => page(null), put), keys);
  const reload = useCallback(() => first((made) => (setNext(made.next), setRows(made.data))), [first]);
  const begin = useCallback(() => (setRows([]), setNext(null), reload()), [reload]);
  const refresh = useCallback(() => {
    if (busy.current) return;
    first((made) =>
      setRows((old) => {
        const fresh = new Set(made.data.map((row) => row.id));
        const places = new Map(old.map((row, place) => [row.id, place]));
        // Of what was on the first page and is no more, only what lies behind its end is still there.
        const end = places.get(made.data.findLast((row) => places.has(row.id))?.id ?? null);
        if (made.has_more && end !== undefined) return [...made.data, ...old.filter((row, place) => place > end && !fresh.has(row.id))];
        // Between a page of new rows alone and what was shown, there may be others.
        setNext(made.next);
        return made.data;
      }),
    );
  }, [first]);
  useRepeated(begin, refresh, forget, seconds);
  const more = useCallback(() => {
    if (busy.current || next === null) return;
    void ask(
      () => page(next),
      (made) => (setNext(made.next), setRows((old) => [...old, ...made.data])),
    );
  }, [first, next]);
  return { rows, error, loading, hasMore: next !== null, more, reload, change: setRows };
}
