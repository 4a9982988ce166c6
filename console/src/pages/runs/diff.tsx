/** What two pieces of data have in common, and what not, as lines. */
import { useMemo } from "preact/hooks";
import { stringify } from "yaml";
import { Diff } from "../../ui/diff";

/** In YAML a long text is as many lines as it has. */
const readable = (value: unknown) => (value === null || value === undefined ? "" : stringify(value, { lineWidth: 0, aliasDuplicateObjects: false }));

export function DataDiff({ before, after, label }: { before: unknown; after: unknown; label: string }) {
  const [left, right] = useMemo(() => [readable(before), readable(after)] as const, [before, after]);
  return <Diff before={left} after={right} label={label} />;
}
