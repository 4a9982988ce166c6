/** All that can be asked here: the definitions that are stored, and what the operator's files and programs serve. */
import { api, data, type Definition } from "../../api";
import { to } from "../../route";
import { may } from "../../session";
import { Empty, optionsOf, PageHead, paged, SearchSelect, Table, Time, useListing, type After, type Column } from "../../ui";
import { t } from "../../words";
import { Offers, useTeams } from "./offers";
import { agentPath, chosenVisibility, contentOf, kindOf, servedPart, VISIBILITIES } from "./definition";

/** Of one name there may be a definition of the user's, of the tenant's and for all. */
type Row = Omit<Definition, "id"> & { id: string; name: string; kind: string; description: string };

function row(given: Definition): Row {
  const served = servedPart(contentOf(given), given.id);
  const kind = served ? kindOf(served.part, served.section) : "";
  return { ...given, id: `${given.visibility} ${given.id}`, name: given.id, kind, description: String(served?.part["description"] ?? "") };
}

const columns = (): Column<Row>[] => [
  { head: t("is.name"), cell: (each) => <strong dir="auto">{each.name}</strong>, width: "minmax(8rem, 1.2fr)" },
  { head: t("agents.kind"), cell: (each) => <code>{each.kind}</code>, width: "9rem", wide: true },
  { head: t("agents.description"), cell: (each) => <bdi>{each.description}</bdi>, width: "minmax(0, 3fr)", wide: true },
  { head: t("agents.for"), cell: (each) => <span class="badge">{t(`agents.for.${each.visibility}`)}</span>, width: "7rem" },
  { head: t("is.version"), cell: (each) => each.version, width: "5rem", numeric: true, wide: true },
  { head: t("agents.changed"), cell: (each) => <Time at={each.created_at} />, width: "8rem", wide: true },
  { head: t("agents.by"), cell: (each) => <bdi>{each.created_by}</bdi>, width: "8rem", wide: true },
];

export function AgentList() {
  const visibility = chosenVisibility();
  const page = async (after: After) => {
    const made = await data(api.GET("/v1/agents", { params: { query: { ...paged(after), ...(visibility ? { visibility } : {}) } } }));
    return { ...made, data: made.data.map(row) };
  };
  const listing = useListing<Row>(page, [visibility]);
  // Of what is stored, the table above tells more.
  const offered = useTeams();
  return (
    <div class="page agents">
      <PageHead title={t("nav.agents")}>
        <SearchSelect label={t("agents.for")} name="for" hideLabel options={optionsOf(VISIBILITIES, (each) => t(`agents.for.${each}`))} any={t("agents.forAny")} />
        {may("agents:write") && (
          <a class="button primary" href={to(["agents"], { new: "1" })}>
            {t("agents.new")}
          </a>
        )}
      </PageHead>
      <Table label={t("agents.stored")} columns={columns()} listing={listing} href={(each) => agentPath(each.name, each.visibility)} empty={<Empty title={t("agents.none")}>{t("agents.noneHint")}</Empty>} />
      <Offers title={t("agents.offered")} of={offered} href={(id) => agentPath(id, null)} />
    </div>
  );
}
