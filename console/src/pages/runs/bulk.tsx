/** Something is done with many runs at once: those that are selected, or all that the filters find. */
import { useEffect, useState } from "preact/hooks";
import { Button, Dialog } from "../../ui/controls";
import { Loading, Problem } from "../../ui/state";
import { count } from "../../ui/values";
import { t } from "../../words";
import { can, mayDo, steerAll, steerEach, VERBS, type Filters, type Outcome, type Row, type Verb } from "./rows";

interface Found {
  found: number;
  runs: readonly Outcome[];
}

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
  const [before, setBefore] = useState<Found | null>(null);
  const [after, setAfter] = useState<Found | null>(null);
  const [error, setError] = useState<unknown>(null);
  const all = async (dry: boolean): Promise<Found> => {
    const told = await steerAll(verb, filters, dry);
    return { found: told.found, runs: told.data };
  };
  const look = () => {
    setError(null);
    if (rows === null) all(true).then(setBefore, setError);
    else {
      const fit = rows.filter((row) => can(verb, row.status));
      setBefore({ found: fit.length, runs: fit.map((row) => ({ id: row.id, team: row.team, outcome: "found", reason: null })) });
    }
  };
  useEffect(look, []);
  const begin = async () => {
    if (rows === null) setAfter(await all(false));
    else {
      const runs = await steerEach(verb, rows.filter((row) => can(verb, row.status)));
      setAfter({ found: runs.length, runs });
    }
  };
  const told = after ?? before;
  const counts = (["done", "asked", "refused"] as const).map((outcome) => [outcome, after?.runs.filter((each) => each.outcome === outcome).length ?? 0] as const);
  return (
    <Dialog title={t(`runs.many.${verb}`)} onClose={() => onClose(after !== null)} wide>
      {error !== null && <Problem error={error} retry={look} />}
      {!told && error === null && <Loading />}
      {told && (
        <div class="stack">
          {after ? (
            <p role="status">{counts.filter(([, n]) => n).map(([outcome, n]) => `${count(n)} ${t(`runs.outcome.${outcome}`)}`).join(" · ") || t("runs.noneFit")}</p>
          ) : (
            <p>{told.found ? t("runs.fit", { n: count(told.found) }) : t("runs.noneFit")}</p>
          )}
          {told.found > told.runs.length && <p class="quiet">{t("runs.atOnce", { n: count(told.runs.length) })}</p>}
          {told.runs.length > 0 && <Outcomes runs={told.runs} />}
          {!after && told.found > 0 && (
            <p>
              <Button kind={verb === "cancel" ? "danger" : "primary"} onClick={begin}>
                {t(`runs.do.${verb}`)}
              </Button>
            </p>
          )}
        </div>
      )}
    </Dialog>
  );
}

/** The verbs for what is selected; where nothing is, for operators, of all runs that are found. */
export function BulkBar({ selected, filters, onClear, onDone }: { selected: readonly Row[]; filters: Filters; onClear: () => void; onDone: () => void }) {
  const [asked, setAsked] = useState<Verb | null>(null);
  const some = selected.length > 0;
  return (
    <div class="bulk" role="group" aria-label={t("runs.bulk")}>
      <span class="quiet">{some ? t("runs.selected", { n: count(selected.length) }) : t("runs.allFound")}</span>
      {VERBS.filter(mayDo).map((verb) => (
        <Button key={verb} kind="ghost" disabled={some && !selected.some((row) => can(verb, row.status))} onClick={() => setAsked(verb)}>
          {t(`runs.do.${verb}`)}
        </Button>
      ))}
      {some && (
        <Button kind="ghost" onClick={onClear}>
          {t("do.clear")}
        </Button>
      )}
      {asked && <BulkDialog verb={asked} rows={some ? selected : null} filters={filters} onClose={(done) => (setAsked(null), done && onDone())} />}
    </div>
  );
}
