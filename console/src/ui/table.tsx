/** A table of any length: only the rows that can be seen are in the page. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Listing } from "./load";
import { language, t } from "../words";
import { Empty, Loading, Problem } from "./state";

export interface Column<T> {
  name: string;
  head: string;
  cell: (row: T) => ComponentChildren;
  /** As in CSS's grid-template-columns. Default: an equal part. */
  width?: string;
  numeric?: boolean;
  /** Left out where the page is narrow. */
  wide?: boolean;
}

interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  listing: Listing<T>;
  href?: (row: T) => string;
  selected?: ReadonlySet<string>;
  onSelect?: (id: string, selected: boolean) => void;
  empty?: ComponentChildren;
}

const ROW = 40;
const BEYOND = 12;

type RowProps<T> = Pick<TableProps<T>, "columns"> & { row: T; place: number; cells: readonly string[]; selected: boolean; href: TableProps<T>["href"] | undefined; onSelect: TableProps<T>["onSelect"] | undefined };

function TableRow<T extends { id: string | null }>({ row, place, columns, cells, href, selected, onSelect }: RowProps<T>) {
  return (
    <div class="table-row" role="row" aria-rowindex={place + 2} data-row={place} style={{ transform: `translateY(${place * ROW}px)` }}>
      {onSelect && (
        <span role="cell">
          <input type="checkbox" aria-label={t("do.selectOne", { name: row.id ?? "" })} checked={selected} onChange={(event) => onSelect(row.id ?? "", event.currentTarget.checked)} />
        </span>
      )}
      {columns.map((each, n) => (
        <span key={each.name} role="cell" class={cells[n]}>
          {n === 0 && href ? (
            <a class="row-link" href={href(row)}>
              {each.cell(row)}
            </a>
          ) : (
            each.cell(row)
          )}
        </span>
      ))}
    </div>
  );
}

/** `href`: where a row leads; arrow keys move between rows, Enter opens one. `onSelect` puts a box before each row. */
export function Table<T extends { id: string | null }>({ label, columns, listing, href, selected, onSelect, empty }: TableProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const drawn = useRef(new Map<T, { of: readonly unknown[]; node: ComponentChildren }>());
  const [seen, setSeen] = useState<[number, number]>([0, 40]);
  const { rows, hasMore, loading, error, more } = listing;
  const look = () => {
    const { scrollTop, clientHeight } = box.current ?? { scrollTop: 0, clientHeight: 0 };
    const from = Math.max(0, Math.floor(scrollTop / ROW) - BEYOND);
    const end = Math.ceil((scrollTop + clientHeight) / ROW) + BEYOND;
    setSeen(([a, b]) => (a === from && b === end ? [a, b] : [from, end]));
    if (hasMore && !loading && error === null && end >= rows.length) more();
  };
  useEffect(look, [rows.length, hasMore, loading]);
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    const watcher = new ResizeObserver(() => latest.current());
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [rows.length === 0]);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = (event.target as Element).closest<HTMLElement>("[data-row]");
    if (!step || !row || (event.target as Element).closest("dialog")) return;
    const next = box.current?.querySelector<HTMLElement>(`[data-row="${Number(row.dataset["row"]) + step}"]`);
    if (!next) return;
    event.preventDefault();
    (next.querySelector<HTMLElement>("a.row-link") ?? next).focus();
    next.scrollIntoView({ block: "nearest" });
  };
  if (error !== null && rows.length === 0) return <Problem error={error} retry={listing.reload} />;
  if (rows.length === 0) return loading ? <Loading lines={8} /> : <>{empty ?? <Empty />}</>;
  const [from, end] = seen;
  const shown = rows.slice(from, end);
  const template = [...(onSelect ? ["2rem"] : []), ...columns.map((each) => each.width ?? "1fr")].join(" ");
  const cells = columns.map((each, place) => `${each.numeric ? "numeric" : ""} ${each.wide ? "if-wide" : ""} ${place ? "" : "table-name"}`);
  // A row that has not changed is not made again: scrolling costs what comes into view.
  const before = drawn.current;
  drawn.current = new Map();
  const draw = (row: T, place: number) => {
    const is = selected?.has(row.id ?? "") ?? false;
    const of = [place, is, columns, href, onSelect, language.value];
    const old = before.get(row);
    const made = old?.of.every((each, n) => each === of[n]) ? old : { of, node: <TableRow key={row.id} {...{ row, place, columns, cells, href, onSelect }} selected={is} /> };
    drawn.current.set(row, made);
    return made.node;
  };
  return (
    <div class="table" ref={box} onScroll={look} onKeyDown={move} tabIndex={-1} role="table" aria-label={label} aria-rowcount={hasMore ? -1 : rows.length + 1} style={{ "--columns": template }}>
      <div class="table-head" role="row" aria-rowindex={1}>
        {onSelect && (
          <span role="columnheader">
            <span class="unseen">{t("do.select")}</span>
          </span>
        )}
        {columns.map((each, n) => (
          <span key={each.name} role="columnheader" class={cells[n]}>
            {each.head || <span class="unseen">{t("do.actions")}</span>}
          </span>
        ))}
      </div>
      <div class="table-body" role="rowgroup" style={{ height: `${rows.length * ROW}px` }}>
        {shown.map((row, n) => draw(row, from + n))}
      </div>
      {loading && <p class="quiet table-foot">{t("state.loading")}</p>}
      {error !== null && <Problem error={error} retry={more} />}
    </div>
  );
}
