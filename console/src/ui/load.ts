/** Hooks that load: one thing, or a list page by page. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { Page } from "../api/shapes";

/** What asks for the page of a list after another one. */
export function paged(after: string | number | null, limit = 100): { limit: number; after?: string } {
  return after === null ? { limit } : { limit, after: String(after) };
}

/** All entries of a list that is not long. */
export async function allOf<T>(page: (after: string | number | null) => Promise<Page<T>>): Promise<T[]> {
  const rows: T[] = [];
  let after: string | number | null = null;
  do {
    const made: Page<T> = await page(after);
    rows.push(...made.data);
    after = made.next;
  } while (after !== null);
  return rows;
}

export interface Loaded<T> {
  value: T | null;
  error: unknown;
  loading: boolean;
  reload: () => void;
  set: (value: T) => void;
}

/** Load something when `keys` change, and again every `seconds` while the page is looked at. What was loaded stays while
 * it is loaded again. */
export function useLoaded<T>(load: () => Promise<T>, keys: readonly unknown[], seconds = 0): Loaded<T> {
  const [value, set] = useState<T | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [loading, setLoading] = useState(true);
  const current = useRef(0);
  const reload = useCallback(() => {
    const mine = ++current.current;
    setLoading(true);
    load()
      .then((made) => mine === current.current && (set(() => made), setError(null)))
      .catch((failed: unknown) => mine === current.current && setError(failed))
      .finally(() => mine === current.current && setLoading(false));
  }, keys);
  useEffect(() => {
    set(null);
    reload();
    return () => void current.current++;
  }, [reload]);
  useEffect(() => {
    const timer = seconds ? setInterval(() => document.hidden || reload(), seconds * 1000) : undefined;
    return () => clearInterval(timer);
  }, [reload, seconds]);
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
export function useListing<T extends { id: string | null }>(page: (after: string | number | null) => Promise<Page<T>>, keys: readonly unknown[], seconds = 0): Listing<T> {
  const [rows, setRows] = useState<readonly T[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [loading, setLoading] = useState(true);
  const next = useRef<string | number | null>(null);
  const [hasMore, setHasMore] = useState(false);
  const current = useRef(0);
  const busy = useRef(false);
  const ask = useCallback(async (after: string | number | null, put: (made: Page<T>) => void) => {
    const mine = current.current;
    busy.current = true;
    setLoading(true);
    try {
      const made = await page(after);
      if (mine !== current.current) return;
      put(made);
      setError(null);
    } catch (failed) {
      if (mine === current.current) setError(failed);
    } finally {
      if (mine === current.current) {
        busy.current = false;
        setLoading(false);
      }
    }
  }, keys);
  const reload = useCallback(() => {
    current.current++;
    void ask(null, (made) => {
      next.current = made.next;
      setHasMore(made.has_more);
      setRows(made.data);
    });
  }, [ask]);
  const refresh = useCallback(() => {
    if (busy.current || document.hidden) return;
    void ask(null, (made) =>
      setRows((old) => {
        const fresh = new Map(made.data.map((row) => [row.id, row]));
        // Of what was on the first page and is no more, only what lies behind its end is still there.
        const end = old.findIndex((row) => row.id === made.data.at(-1)?.id);
        return made.has_more ? [...made.data, ...old.filter((row, place) => place > end && !fresh.has(row.id))] : made.data;
      }),
    );
  }, [ask]);
  useEffect(() => {
    setRows([]);
    reload();
    const timer = seconds ? setInterval(refresh, seconds * 1000) : undefined;
    return () => (current.current++, clearInterval(timer));
  }, [reload]);
  const more = useCallback(() => {
    if (busy.current || next.current === null) return;
    void ask(next.current, (made) => {
      next.current = made.next;
      setHasMore(made.has_more);
      setRows((old) => [...old, ...made.data]);
    });
  }, [ask]);
  return { rows, error, loading, hasMore, more, reload, change: setRows };
}
