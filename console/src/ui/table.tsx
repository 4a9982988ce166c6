/** A table of any length: only the rows that can be seen are in the page. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Listing } from "./load";
import { language, t } from "../words";
import { useSeen } from "./seen";
import { Empty, Loading, Problem } from "./state";

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  /** As in CSS's grid-template-columns. Default: an equal part. */
  width?: string;
  numeric?: boolean;
  /** Left out where the page is narrow. */
  wide?: boolean;
}

/** The column with what can be done with each row. */
export const acts = <T,>(width: string, cell: Column<T>["cell"]): Column<T> => ({ head: "", width, cell });

interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  listing: Listing<T>;
  href?: (row: T) => string;
  selected?: ReadonlySet<string>;
  onSelect?: (id: string, selected: boolean) => void;
  /** What is shown where there are no rows: a title, or more. */
  empty?: ComponentChildren;
}

const ROW = 40;

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
        <span key={n} role="cell" class={cells[n]}>
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
export function Table<T extends { id: string | null }>({ label, columns, listing, href, selected, onSelect, empty = t("state.empty") }: TableProps<T>) {
  const drawn = useRef(new Map<T, { of: readonly unknown[]; node: ComponentChildren }>());
  const { rows, hasMore, loading, error, more } = listing;
  const { box, from, end, look } = useSeen(ROW, rows.length, (seen) => hasMore && !loading && error === null && seen >= rows.length && more());
  useEffect(look, [rows.length, hasMore, loading]);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = (event.target as Element).closest<HTMLElement>("[data-row]");
    if (!step || !row || (event.target as Element).closest("dialog, [type=radio]")) return;
    const next = box.current?.querySelector<HTMLElement>(`[data-row="${Number(row.dataset["row"]) + step}"]`);
    if (!next) return;
    event.preventDefault();
    (next.querySelector<HTMLElement>("a.row-link") ?? next).focus();
    next.scrollIntoView({ block: "nearest" });
  };
  if (error !== null && rows.length === 0) return <Problem error={error} retry={listing.reload} />;
  if (rows.length === 0) return loading ? <Loading lines={8} /> : <>{typeof empty === "string" ? <Empty title={empty} /> : empty}</>;
  const shown = rows.slice(from, end);
  const widths = (shown: readonly Column<T>[]) => [...(onSelect ? ["1.25rem"] : []), ...shown.map((each) => each.width ?? "1fr")].join(" ");
  const cells = columns.map((each) => `${each.numeric ? "numeric" : ""} ${each.wide ? "if-wide" : ""}`);
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
    <div class="table" ref={box} onScroll={look} onKeyDown={move} tabIndex={href ? -1 : 0} role="table" aria-label={label} aria-rowcount={hasMore ? -1 : rows.length + 1} style={{ "--columns": widths(columns), "--narrow": widths(columns.filter((each) => !each.wide).map((each, n) => (n ? each : { ...each, width: "minmax(0, 1fr)" }))) }}>
      <div class="table-head" role="row" aria-rowindex={1}>
        {onSelect && (
          <span role="columnheader">
            <span class="unseen">{t("do.select")}</span>
          </span>
        )}
        {columns.map((each, n) => (
          <span key={n} role="columnheader" class={cells[n]}>
            {each.head || <span class="unseen">{t("do.actions")}</span>}
          </span>
        ))}
      </div>
      <div class="table-body" role="rowgroup" style={{ height: `${rows.length * ROW}px` }}>
        {shown.map((row, n) => draw(row, from + n))}
      </div>
      {loading && <p class="quiet table-foot">{t("state.loading")}</p>}
      {error !== null && <Problem error={error} retry={hasMore ? more : listing.reload} />}
    </div>
  );
}
