/** Something is done with many runs at once: those that are selected, or all that the filters find. */
import { useState } from "preact/hooks";
import { Button, count, Dialog, Show, useLoaded } from "../../ui";
import { t } from "../../words";
import { can, mayDo, steerAll, steerEach, VERBS, type Filters, type Found, type Outcome, type Row, type Verb } from "./rows";

const SHOWN = 200;

function Outcomes({ runs }: { runs: readonly Outcome[] }) {
  const refused = runs.filter((each) => each.outcome === "refused");
  // What was refused comes first: it is what one has to read.
  const shown = [...refused, ...runs.filter((each) => each.outcome !== "refused")].slice(0, SHOWN);
  return (
    <ul class="outcomes" tabIndex={0} aria-label={t("runs.outcomes")}>
      {shown.map((each) => (
        <li key={each.id}>
          <span class={`badge outcome-${each.outcome}`}>{t(`runs.outcome.${each.outcome}`)}</span>
          <bdi>{each.team}</bdi>
          <code>{each.id}</code>
          {each.reason && <span class="quiet">{each.reason}</span>}
        </li>
      ))}
      {runs.length > SHOWN && <li class="quiet">… {count(runs.length - SHOWN)}</li>}
    </ul>
  );
}

/** Asks before, and tells what became of each run after. `rows` null: all runs that `filters` find. */
function BulkDialog({ verb, rows, filters, onClose }: { verb: Verb; rows: readonly Row[] | null; filters: Filters; onClose: (done: boolean) => void }) {
  /** `dry`: only look at which runs it would be. */
  const ask = async (dry: boolean): Promise<Found> => {
    if (rows === null) return await steerAll(verb, filters, dry);
    const fit = rows.filter((row) => can(verb, row.status));
    const data = dry ? fit.map(({ id, team }): Outcome => ({ id, team, outcome: "found", reason: null })) : await steerEach(verb, fit);
    return { found: data.length, data };
  };
  const before = useLoaded(() => ask(true), []);
  const [after, setAfter] = useState<Found | null>(null);
  const became = (["done", "asked", "refused"] as const).map((outcome) => [outcome, after?.data.filter((each) => each.outcome === outcome).length ?? 0] as const);
  const told = (found: number) => {
    if (!after) return <p>{found ? t("runs.fit", { n: count(found) }) : t("runs.noneFit")}</p>;
    const outcomes = became.filter(([, n]) => n).map(([outcome, n]) => `${count(n)} ${t(`runs.outcome.${outcome}`)}`);
    return <p role="status">{outcomes.join(" · ") || t("runs.noneFit")}</p>;
  };
  return (
    <Dialog title={t(`runs.many.${verb}`)} onClose={() => onClose(after !== null)} wide>
      <Show of={{ ...before, value: after ?? before.value }}>
        {({ found, data: runs }) => (
          <div class="stack">
            {told(found)}
            {found > runs.length && <p class="quiet">{t("runs.atOnce", { n: count(runs.length) })}</p>}
            {runs.length > 0 && <Outcomes runs={runs} />}
            {!after && found > 0 && (
              <p>
                <Button kind={verb === "cancel" ? "danger" : "primary"} onClick={async () => setAfter(await ask(false))}>{t(`runs.do.${verb}`)}</Button>
              </p>
            )}
          </div>
        )}
      </Show>
    </Dialog>
  );
}

/** The verbs for what is selected; where nothing is, of all runs that are found, if `all` may be meant. */
export function BulkBar({ selected, all, filters, onClear, onDone }: { selected: readonly Row[]; all: boolean; filters: Filters; onClear: () => void; onDone: () => void }) {
  // What was meant when a verb was clicked: the list goes on changing behind the dialog.
  const [asked, setAsked] = useState<{ verb: Verb; rows: readonly Row[] | null; filters: Filters } | null>(null);
  const some = selected.length > 0;
  return (
    <>
      {(some || all) && (
        <div class="bulk" role="group" aria-label={t("runs.bulk")}>
          <span class="quiet">{some ? t("runs.selected", { n: count(selected.length) }) : t("runs.allFound")}</span>
          {VERBS.filter(mayDo).map((verb) => (
            <Button key={verb} kind="ghost" disabled={some && !selected.some((row) => can(verb, row.status))} onClick={() => setAsked({ verb, rows: some ? selected : null, filters })}>
              {t(`runs.do.${verb}`)}
            </Button>
          ))}
          {some && <Button kind="ghost" onClick={onClear}>{t("do.clear")}</Button>}
        </div>
      )}
      {asked && <BulkDialog {...asked} onClose={(done) => (setAsked(null), done && onDone())} />}
    </>
  );
}
