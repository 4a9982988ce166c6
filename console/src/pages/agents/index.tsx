/** What can be asked: the definitions that are stored, and what the operator's files and programs serve; and one agent or
 * team of them: its definition where one is stored, its team as a graph, its versions, and a chat with it, to try it. */
import { useState } from "preact/hooks";
import { api, ApiError, data, filled, type Definition } from "../../api";
import { chosen, go, path, query, to } from "../../route";
import { may } from "../../session";
import { ConfirmButton, Empty, LinkButton, Loading, optionsOf, PageHead, paged, Problem, SearchSelect, Show, Table, Tabs, tell, Time, useListing, useLoaded, type After, type Column } from "../../ui";
import { t } from "../../words";
import { agent, agentPath, chosenVisibility, contentOf, kindOf, mayChange, servedPart, VISIBILITIES } from "./definition";
import { EditDefinition, NewAgent } from "./edit";
import { TeamGraph } from "./graph";
import { Offers, useTeams } from "./offers";
import { TryOut } from "./try-out";
import { Versions } from "./versions";
import "./agents.css";

/** Of one name there may be a definition of the user's, of the tenant's and for all. */
type Row = Omit<Definition, "id"> & { id: string; name: string; kind: string; description: string };

function row(given: Definition): Row {
  const served = servedPart(contentOf(given), given.id);
  const kind = served ? kindOf(served.part, served.section) : "";
  return { ...given, id: `${given.visibility} ${given.id}`, name: given.id, kind, description: String(served?.part["description"] ?? "") };
}

const columns = (): Column<Row>[] => [
  { head: t("is.name"), cell: (each) => <strong dir="auto">{each.name}</strong>, width: "minmax(8rem, 1.2fr)" },
  { head: t("is.kind"), cell: (each) => <code>{each.kind}</code>, width: "9rem", wide: true },
  { head: t("agents.description"), cell: (each) => <bdi>{each.description}</bdi>, width: "minmax(0, 3fr)", wide: true },
  { head: t("agents.for"), cell: (each) => <span class="badge">{t(`agents.for.${each.visibility}`)}</span>, width: "7rem" },
  { head: t("is.version"), cell: (each) => each.version, width: "5rem", numeric: true, wide: true },
  { head: t("agents.changed"), cell: (each) => <Time at={each.created_at} />, width: "8rem", wide: true },
  { head: t("agents.by"), cell: (each) => <bdi>{each.created_by}</bdi>, width: "8rem", wide: true },
];

function AgentList() {
  const visibility = chosenVisibility();
  const page = async (after: After) => {
    const made = await data(api.GET("/v1/agents", { params: { query: { ...paged(after), ...filled({ visibility }) } } }));
    return { ...made, data: made.data.map(row) };
  };
  const listing = useListing<Row>(page, [visibility]);
  // Of what is stored, the table above tells more.
  const offered = useTeams();
  return (
    <div class="page agents">
      <PageHead title={t("nav.agents")}>
        <SearchSelect label={t("agents.for")} name="for" hideLabel options={optionsOf(VISIBILITIES, (each) => t(`agents.for.${each}`))} any={t("agents.forAny")} />
        {may("agents:write") && <LinkButton href={to(["agents"], { new: "1" })}>{t("agents.new")}</LinkButton>}
      </PageHead>
      <Table label={t("agents.stored")} columns={columns()} listing={listing} href={(each) => agentPath(each.name, each.visibility)} empty={<Empty title={t("agents.none")}>{t("agents.noneHint")}</Empty>} />
      <Offers title={t("agents.offered")} of={offered} href={(id) => agentPath(id, null)} />
    </div>
  );
}

const TABS = ["definition", "team", "versions"] as const;

function Stored({ stored, reload }: { stored: Definition; reload: (made: Definition) => void }) {
  const { id: name, visibility, version } = stored;
  const tab = chosen("tab", TABS) ?? "definition";
  const [typed, setTyped] = useState<string | null>(null);
  const rolledBack = (made: Definition) => (setTyped(null), reload(made));
  const remove = async () => {
    await data(api.DELETE("/v1/agents/{name}", { params: { path: { name }, query: { visibility, version } } }));
    tell(t("is.deleted", { name }));
    go(to(["agents"]));
  };
  return (
    <div class="page agents">
      <PageHead title={name}>
        <span class="badge">{t(`agents.for.${visibility}`)}</span>
        <span class="quiet">
          {t("agents.versionBy", { version, by: stored.created_by })} <Time at={stored.created_at} />
        </span>
        {mayChange(visibility) && <ConfirmButton title={t("agents.delete")} on={t("do.delete")} text={t("agents.deleteText", { name })} onYes={remove} />}
      </PageHead>
      <Tabs label={name} tabs={TABS.map((each) => ({ href: to(["agents", name], { for: visibility, tab: each, run: query.value.get("run") }), text: t(`agents.tab.${each}`), current: each === tab }))} />
      <div class="beside">
        <div class="beside-main">
          {tab === "definition" && <EditDefinition stored={stored} typed={typed} onTyped={setTyped} onSaved={reload} />}
          {tab === "team" && <TeamGraph name={name} definition={contentOf(stored)} />}
          {tab === "versions" && <Versions stored={stored} onRolledBack={rolledBack} />}
        </div>
        {may("chat") && <TryOut key={version} name={name} note={t("is.versionN", { n: version })} />}
      </div>
    </div>
  );
}

/** What the operator serves from files or a program: the API does not tell how it is made. */
function Served({ name }: { name: string }) {
  const found = useLoaded(async () => (await data(api.GET("/v1/models/{model}", { params: { path: { model: name } } }))) as { description?: string }, [name]);
  return (
    <Show of={found}>
      {({ description }) => (
        <div class="page agents">
          <PageHead title={name} />
          <div class="beside">
            <div class="beside-main">
              <p>
                <bdi>{description}</bdi>
              </p>
              <Empty title={t("agents.ofOperator")}>{t("agents.ofOperatorHint")}</Empty>
            </div>
            {may("chat") && <TryOut name={name} />}
          </div>
        </div>
      )}
    </Show>
  );
}

function AgentPage({ name }: { name: string }) {
  const visibility = chosenVisibility();
  const loaded = useLoaded(() => agent(name, visibility), [name, visibility]);
  const reload = (made: Definition) => {
    loaded.set(made);
    if (visibility === null) go(agentPath(name, made.visibility), { replace: true });
  };
  if (loaded.value) return <Stored stored={loaded.value} reload={reload} />;
  if (loaded.loading) return <Loading />;
  if (loaded.error instanceof ApiError && loaded.error.status === 404 && visibility === null) return <Served name={name} />;
  return <Problem error={loaded.error} retry={loaded.reload} />;
}

/** `/agents`, and `/agents/NAME` of one. */
export default function Agents() {
  const name = path.value[1];
  if (name !== undefined) return <AgentPage key={`${name} ${query.value.get("for")}`} name={name} />;
  return query.value.has("new") ? <NewAgent /> : <AgentList />;
}
