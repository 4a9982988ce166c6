/** Two texts, line by line: what went and what came. What stayed is shown around a change only. */
import { structuredPatch } from "diff";
import { useMemo } from "preact/hooks";
import { t } from "../words";

const AROUND = 3;
const WORDS = { "+": "diff.added", "-": "diff.removed" } as const;

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const hunks = useMemo(() => structuredPatch("", "", before, after, "", "", { context: AROUND }).hunks, [before, after]);
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
