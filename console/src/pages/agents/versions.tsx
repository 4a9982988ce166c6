/** The versions of a definition that are kept: what differs between two of them, and how an older one is served again. */
import { api, data, type Definition } from "../../api";
import { asked, search } from "../../route";
import { acts, ConfirmButton, paged, Show, Table, tell, Time, useListing, useLoaded, type After, type Column } from "../../ui";
import { Diff } from "../../ui/diff";
import { t } from "../../words";
import { agent, mayChange } from "./definition";

/** The version of each side that the address has, or what else is of interest: the newest change. */
function sides(rows: readonly Definition[]): [number, number] {
  const [newest, before] = rows;
  const given = (name: string, otherwise: number | undefined) => Number(asked(name)) || otherwise || 1;
  return [given("from", before?.version ?? newest?.version), given("to", newest?.version)];
}

function Difference({ stored: { id: name, visibility }, from, to }: { stored: Definition; from: number; to: number }) {
  const both = useLoaded(() => Promise.all([agent(name, visibility, from), agent(name, visibility, to)]), [name, visibility, from, to]);
  const label = t("agents.difference", { from, to });
  return (
    <>
      <h2>{label}</h2>
      <Show of={both}>{([before, after]) => <Diff label={label} before={before.definition} after={after.definition} />}</Show>
    </>
  );
}

export function Versions({ stored, onRolledBack }: { stored: Definition; onRolledBack: (made: Definition) => void }) {
  const { id: name, visibility, version } = stored;
  const page = async (after: After) => {
    const made = await data(api.GET("/v1/agents/{name}/versions", { params: { path: { name }, query: { visibility, ...paged(after) } } }));
    return { ...made, data: made.data.map((each) => ({ ...each, id: String(each.version) })) };
  };
  const listing = useListing<Definition>(page, [name, visibility, version]);
  const rollBack = async (to: number) => {
    const made = await data(api.POST("/v1/agents/{name}/rollback", { params: { path: { name } }, body: { to, visibility, version } }));
    tell(t("agents.rolledBack", { to, version: made.version }));
    search({ from: null, to: null });
    onRolledBack(made);
  };
  const [from, to] = sides(listing.rows);
  const radio = (side: "from" | "to", current: number) => (row: Definition) => (
    <input type="radio" name={side} aria-label={t(`agents.${side}`, { version: row.version })} checked={row.version === current} onChange={() => search({ [side]: String(row.version) })} />
  );
  const numbered = (row: Definition) => (
    <>
      {row.version} {row.version === version && <span class="badge">{t("agents.served")}</span>}
      {row.restores !== null && <span class="quiet"> {t("agents.restores", { version: row.restores })}</span>}
    </>
  );
  const back = ({ version: each }: Definition) =>
    each !== version && mayChange(visibility) && <ConfirmButton of={t("is.versionN", { n: each })} title={t("do.rollBack")} text={t("agents.rollbackText", { version: each, next: version + 1 })} onYes={() => rollBack(each)} />;
  const columns: Column<Definition>[] = [
    { head: t("is.version"), cell: numbered, width: "minmax(8rem, 2fr)" },
    { head: t("agents.before"), cell: radio("from", from), width: "4rem" },
    { head: t("agents.after"), cell: radio("to", to), width: "4rem" },
    { head: t("agents.changed"), cell: (row) => <Time at={row.created_at} />, wide: true },
    { head: t("agents.by"), cell: (row) => <bdi>{row.created_by}</bdi>, wide: true },
    acts("8rem", back),
  ];
  return (
    <>
      <Table label={t("agents.tab.versions")} columns={columns} listing={listing} />
      {listing.rows.length > 0 && <Difference stored={stored} from={from} to={to} />}
    </>
  );
}
