/** One agent or team that can be asked: its definition where one is stored, its team as a graph, its versions; and a chat
 * with it, to try it. */
import { api, ApiError, data } from "../../api/client";
import type { Definition } from "../../api/shapes";
import { go, query, to } from "../../route";
import { may } from "../../session";
import { Tabs } from "../../ui/controls";
import { ConfirmButton } from "../../ui/form";
import { useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Empty, Loading, Problem } from "../../ui/state";
import { tell } from "../../ui/toast";
import { Time } from "../../ui/values";
import { t } from "../../words";
import { agent, agentPath, chosenVisibility, contentOf, mayChange } from "./definition";
import { EditDefinition } from "./edit";
import { TeamGraph } from "./graph";
import { TryOut } from "./try-out";
import { Versions } from "./versions";

const TABS = ["definition", "team", "versions"] as const;

function Stored({ stored, reload }: { stored: Definition; reload: (made: Definition) => void }) {
  const { id: name, visibility, version } = stored;
  const tab = TABS.find((each) => each === query.value.get("tab")) ?? "definition";
  const remove = async () => {
    await data(api.DELETE("/v1/agents/{name}", { params: { path: { name }, query: { visibility, version } } }));
    tell(t("agents.deleted", { name }));
    go(to(["agents"]));
  };
  return (
    <div class="page agents">
      <PageHead title={name}>
        <span class="badge">{t(`agents.for.${visibility}`)}</span>
        <span class="quiet">
          {t("agents.versionBy", { version, by: stored.created_by })} <Time at={stored.created_at} />
        </span>
        {mayChange(visibility) && (
          <ConfirmButton kind="plain" title={t("agents.delete")} text={t("agents.deleteText", { name })} onYes={remove}>
            {t("do.delete")}
          </ConfirmButton>
        )}
      </PageHead>
      <Tabs label={name} tabs={TABS.map((each) => ({ href: to(["agents", name], { for: visibility, tab: each, run: query.value.get("run") }), text: t(`agents.tab.${each}`), current: each === tab }))} />
      <div class="beside">
        <div class="beside-main">
          {tab === "definition" && <EditDefinition stored={stored} onSaved={reload} />}
          {tab === "team" && <TeamGraph name={name} definition={contentOf(stored)} />}
          {tab === "versions" && <Versions stored={stored} onRolledBack={reload} />}
        </div>
        {may("chat") && <TryOut key={version} name={name} note={t("agents.tryVersion", { version })} />}
      </div>
    </div>
  );
}

/** What the operator serves from files or a program: the API does not tell how it is made. */
function Served({ name }: { name: string }) {
  const found = useLoaded(async () => (await data(api.GET("/v1/models/{model}", { params: { path: { model: name } } }))) as { description?: string }, [name]);
  if (found.error !== null) return <Problem error={found.error} retry={found.reload} />;
  if (!found.value) return <Loading />;
  return (
    <div class="page agents">
      <PageHead title={name} />
      <div class="beside">
        <div class="beside-main">
          <p>
            <bdi>{found.value.description}</bdi>
          </p>
          <Empty title={t("agents.ofOperator")}>{t("agents.ofOperatorHint")}</Empty>
        </div>
        {may("chat") && <TryOut name={name} />}
      </div>
    </div>
  );
}

export function AgentPage({ name }: { name: string }) {
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
