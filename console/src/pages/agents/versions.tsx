/** The versions of a definition that are kept: what differs between two of them, and how an older one is served again. */
import { api, data } from "../../api/client";
import type { Definition } from "../../api/shapes";
import { query, search } from "../../route";
import { Button } from "../../ui/controls";
import { Diff } from "../../ui/diff";
import { ConfirmButton } from "../../ui/form";
import { write } from "../../ui/editor/places";
import { useListing, useLoaded } from "../../ui/load";
import { Loading, Problem } from "../../ui/state";
import { tell } from "../../ui/toast";
import { Time } from "../../ui/values";
import { t } from "../../words";
import { agent, mayChange, versionsOf } from "./definition";

interface Row extends Omit<Definition, "id"> {
  id: string;
}

/** The version of each side that the address has, or what else is of interest: the newest change. */
function sides(rows: readonly Row[]): [number, number] {
  const [newest, before] = rows;
  const given = (name: string, otherwise: number | undefined) => Number(query.value.get(name)) || otherwise || 1;
  return [given("from", before?.version ?? newest?.version), given("to", newest?.version)];
}

function Difference({ stored, from, to }: { stored: Definition; from: number; to: number }) {
  const { id: name, visibility } = stored;
  const both = useLoaded(() => Promise.all([from, to].map((each) => agent(name, visibility, each))), [name, visibility, from, to]);
  if (both.error !== null) return <Problem error={both.error} retry={both.reload} />;
  const [before, after] = both.value ?? [];
  if (!before || !after) return <Loading />;
  return <Diff label={t("agents.difference", { from, to })} before={write(before.definition, "yaml")} after={write(after.definition, "yaml")} />;
}

export function Versions({ stored, onRolledBack }: { stored: Definition; onRolledBack: (made: Definition) => void }) {
  const { id: name, visibility, version } = stored;
  const listing = useListing<Row>(
    async (after) => {
      const page = await versionsOf(name, visibility, after);
      return { ...page, data: page.data.map((each) => ({ ...each, id: String(each.version) })) };
    },
    [name, visibility, version],
  );
  const rollBack = async (to: number) => {
    const made = await data(api.POST("/v1/agents/{name}/rollback", { params: { path: { name } }, body: { to, visibility, version } }));
    tell(t("agents.rolledBack", { to, version: made.version }));
    search({ from: null, to: null });
    onRolledBack(made);
  };
  if (listing.error !== null) return <Problem error={listing.error} retry={listing.reload} />;
  if (listing.rows.length === 0) return <Loading />;
  const [from, to] = sides(listing.rows);
  const radio = (side: "from" | "to", each: number, current: number) => (
    <input type="radio" name={side} aria-label={t(`agents.${side}`, { version: each })} checked={each === current} onChange={() => search({ [side]: String(each) })} />
  );
  return (
    <div class="agent-versions">
      <table>
        <thead>
          <tr>
            <th scope="col">{t("agents.before")}</th>
            <th scope="col">{t("agents.after")}</th>
            <th scope="col">{t("agents.version")}</th>
            <th scope="col">{t("agents.changed")}</th>
            <th scope="col">{t("agents.by")}</th>
            <th scope="col">
              <span class="unseen">{t("agents.rollback")}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {listing.rows.map((each) => (
            <tr key={each.id}>
              <td>{radio("from", each.version, from)}</td>
              <td>{radio("to", each.version, to)}</td>
              <td>
                {each.version} {each.version === version && <span class="badge">{t("agents.served")}</span>}
                {each.restores !== null && <span class="quiet"> {t("agents.restores", { version: each.restores })}</span>}
              </td>
              <td>
                <Time at={each.created_at} />
              </td>
              <td>
                <bdi>{each.created_by}</bdi>
              </td>
              <td>
                {each.version !== version && mayChange(visibility) && (
                  <ConfirmButton
                    label={t("agents.rollbackTo", { version: each.version })}
                    title={t("agents.rollback")}
                    text={t("agents.rollbackText", { version: each.version, next: version + 1 })}
                    onYes={() => rollBack(each.version)}
                  >
                    {t("agents.rollback")}
                  </ConfirmButton>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {listing.hasMore && <Button onClick={listing.more}>{t("do.more")}</Button>}
      <h2>{t("agents.difference", { from, to })}</h2>
      <Difference stored={stored} from={from} to={to} />
    </div>
  );
}
