/** A long list, and beside it all of the entry that is chosen. The address says which (`at`). */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef } from "preact/hooks";
import { query, search } from "../../route";
import { Button, Empty } from "../../ui";
import { useSeen } from "../../ui/seen";
import { t } from "../../words";

interface InspectorProps<T> {
  label: string;
  rows: readonly T[];
  idOf: (row: T) => string;
  row: (row: T) => ComponentChildren;
  detail: (row: T) => ComponentChildren;
  /** Whether the end stays in view while rows come. */
  live: boolean;
  class: string;
  empty?: string;
}

/** Pixels of a row. */
const HEIGHT = 28;

/** Arrow keys, Home, End and the page keys choose a row; what is chosen is in view, and only what is seen is in the page. */
function Rows<T>({ label, rows, idOf, row, live, class: kind }: Omit<InspectorProps<T>, "detail" | "empty">) {
  const at = query.value.get("at");
  const atEnd = useRef(true);
  const id = useId();
  const { box, from, end, look } = useSeen(HEIGHT, rows.length, () => {
    const { scrollTop = 0, clientHeight = 0, scrollHeight = 0 } = box.current ?? {};
    atEnd.current = scrollTop + clientHeight >= scrollHeight - HEIGHT;
  });
  useLayoutEffect(() => {
    if (live && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
    look();
  }, [rows.length]);
  const place = at === null ? -1 : rows.findIndex((each) => idOf(each) === at);
  useEffect(() => {
    const shown = box.current;
    if (!shown || place < 0) return;
    if (place * HEIGHT < shown.scrollTop || (place + 1) * HEIGHT > shown.scrollTop + shown.clientHeight) shown.scrollTop = (place + 0.5) * HEIGHT - shown.clientHeight / 2;
  }, [at, place < 0]);
  const choose = (each: T) => search({ at: idOf(each) });
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / HEIGHT) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }[event.key];
    if (step === undefined || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    const next = rows[Math.min(rows.length - 1, Math.max(0, (place < 0 && step > 0 ? -1 : place) + step))];
    if (next) choose(next);
  };
  const shown = place >= from && place < end ? `${id}-${place}` : undefined;
  return (
    <div ref={box} class={`rows ${kind}`} role="listbox" aria-label={label} tabIndex={0} aria-activedescendant={shown} onScroll={look} onKeyDown={key}>
      <div class="rows-body" role="presentation" style={{ height: `${rows.length * HEIGHT}px` }}>
        {rows.slice(from, end).map((each, n) => (
          <div
            key={idOf(each)}
            id={`${id}-${from + n}`}
            class="rows-row"
            role="option"
            aria-selected={from + n === place}
            aria-setsize={rows.length}
            aria-posinset={from + n + 1}
            style={{ transform: `translateY(${(from + n) * HEIGHT}px)`, height: `${HEIGHT}px` }}
            onClick={() => choose(each)}
          >
            {row(each)}
          </div>
        ))}
      </div>
    </div>
  );
}

export function Inspector<T>({ detail, empty, ...list }: InspectorProps<T>) {
  const frame = useRef<HTMLDivElement>(null);
  const close = () => {
    search({ at: null });
    frame.current?.querySelector<HTMLElement>("[role=listbox]")?.focus();
  };
  const at = query.value.get("at");
  const chosen = at === null ? undefined : list.rows.find((each) => list.idOf(each) === at);
  if (list.rows.length === 0) return <Empty title={empty ?? t("state.empty")} />;
  return (
    <div ref={frame} class={chosen === undefined ? "inspector" : "inspector open"}>
      <Rows {...list} />
      {chosen !== undefined && (
        <aside class="panel" aria-label={t("runs.details")} tabIndex={0}>
          <div class="panel-close">
            <Button kind="ghost" label={t("do.close")} onClick={close}>×</Button>
          </div>
          {detail(chosen)}
        </aside>
      )}
    </div>
  );
}
