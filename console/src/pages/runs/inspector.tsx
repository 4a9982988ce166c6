/** A long list, and beside it all of the entry that is chosen. The address says which (`at`). */
import type { ComponentChildren } from "preact";
import { query, search } from "../../route";
import { Button } from "../../ui/controls";
import { Empty } from "../../ui/state";
import { Rows } from "../../ui/rows";
import { t } from "../../words";

interface InspectorProps<T> {
  label: string;
  rows: readonly T[];
  idOf: (row: T) => string;
  row: (row: T) => ComponentChildren;
  detail: (row: T) => ComponentChildren;
  live?: boolean;
  height?: number;
  class?: string;
  empty?: string;
}

export function Inspector<T>({ label, rows, idOf, row, detail, empty, ...rest }: InspectorProps<T>) {
  const at = query.value.get("at");
  const chosen = at === null ? undefined : rows.find((each) => idOf(each) === at);
  if (rows.length === 0) return <Empty title={empty ?? t("state.empty")} />;
  return (
    <div class={chosen === undefined ? "inspector" : "inspector open"}>
      <Rows label={label} rows={rows} idOf={idOf} row={row} selected={at} onSelect={(id) => search({ at: id })} {...rest} />
      {chosen !== undefined && (
        <aside class="panel" aria-label={t("runs.details")} tabIndex={0}>
          <div class="panel-close">
            <Button kind="ghost" label={t("do.close")} onClick={() => search({ at: null })}>
              ×
            </Button>
          </div>
          {detail(chosen)}
        </aside>
      )}
    </div>
  );
}

/** Names and values, one beside the other. What has no value is left out. */
export function Facts({ of }: { of: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="fact-line">
      {of
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
