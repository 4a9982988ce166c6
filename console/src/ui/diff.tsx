/** Two pieces of data, line by line: what went and what came. What stayed is shown around a change only. */
import { structuredPatch } from "diff";
import { useMemo } from "preact/hooks";
import { stringify } from "yaml";
import { t } from "../words";

const AROUND = 3;
/** Milliseconds, and lines, after which two texts are too different to be compared in a page. */
const PATIENCE = 2000;
const MOST = 5000;
const WORDS = { "+": "diff.added", "-": "diff.removed" } as const;

/** In YAML a long text is as many lines as it has. */
const linesOf = (value: unknown) => (value === null || value === undefined ? "" : stringify(value, { lineWidth: 0, aliasDuplicateObjects: false }));

export function Diff({ before, after, label }: { before: unknown; after: unknown; label: string }) {
  const hunks = useMemo(() => structuredPatch("", "", linesOf(before), linesOf(after), "", "", { context: AROUND, timeout: PATIENCE })?.hunks, [before, after]);
  if (!hunks || hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0) > MOST) return <p class="quiet">{t("diff.long")}</p>;
  if (hunks.length === 0) return <p class="quiet">{t("diff.equal")}</p>;
  return (
    <div class="diff" role="group" aria-label={label} tabIndex={0}>
      {hunks.map((hunk, n) => (
        <pre key={n}>
          {hunk.lines
            .filter((line) => !line.startsWith("\\"))
            .map((line, at) => {
              const sign = line[0] as "+" | "-" | " ";
              return (
                <div key={at} class={sign === "+" ? "came" : sign === "-" ? "went" : ""}>
                  <span aria-hidden="true">{sign} </span>
                  {sign !== " " && <span class="unseen">{t(WORDS[sign])}: </span>}
                  {line.slice(1)}
                </div>
              );
            })}
        </pre>
      ))}
    </div>
  );
}
