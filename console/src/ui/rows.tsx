/** A list of any length with rows of one height, of which one is chosen: only those that can be seen are in the page. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { useSeen } from "./seen";

interface RowsProps<T> {
  label: string;
  rows: readonly T[];
  idOf: (row: T) => string;
  row: (row: T) => ComponentChildren;
  selected: string | null;
  onSelect: (id: string) => void;
  /** Pixels of a row. */
  height?: number;
  /** Whether the end stays in view while rows come. */
  live?: boolean;
  class?: string;
}

/** Arrow keys, Home, End and the page keys choose a row; what is chosen is in view. */
export function Rows<T>({ label, rows, idOf, row, selected, onSelect, height = 28, live = false, class: kind = "" }: RowsProps<T>) {
  const atEnd = useRef(true);
  const id = useId();
  const { box, from, end, look } = useSeen(height, rows.length, () => {
    const { scrollTop = 0, clientHeight = 0, scrollHeight = 0 } = box.current ?? {};
    atEnd.current = scrollTop + clientHeight >= scrollHeight - height;
  });
  useLayoutEffect(() => {
    if (live && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
    look();
  }, [rows.length]);
  const place = selected === null ? -1 : rows.findIndex((each) => idOf(each) === selected);
  useEffect(() => {
    const shown = box.current;
    if (!shown || place < 0) return;
    if (place * height < shown.scrollTop || (place + 1) * height > shown.scrollTop + shown.clientHeight) shown.scrollTop = (place + 0.5) * height - shown.clientHeight / 2;
  }, [selected, place < 0]);
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / height) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    const step = steps[event.key];
    if (step === undefined || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    const next = rows[Math.min(rows.length - 1, Math.max(0, (place < 0 && step > 0 ? -1 : place) + step))];
    if (next) onSelect(idOf(next));
  };
  return (
    <div
      ref={box}
      class={`rows ${kind}`}
      role="listbox"
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={place >= from && place < end ? `${id}-${place}` : undefined}
      onScroll={look}
      onKeyDown={key}
    >
      <div class="rows-body" role="presentation" style={{ height: `${rows.length * height}px` }}>
        {rows.slice(from, end).map((each, n) => (
          <div
            key={idOf(each)}
            id={`${id}-${from + n}`}
            class="rows-row"
            role="option"
            aria-selected={from + n === place}
            aria-setsize={rows.length}
            aria-posinset={from + n + 1}
            style={{ transform: `translateY(${(from + n) * height}px)`, height: `${height}px` }}
            onClick={() => onSelect(idOf(each))}
          >
            {row(each)}
          </div>
        ))}
      </div>
    </div>
  );
}
