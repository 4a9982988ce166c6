/** One agent or team that can be asked: its definition where one is stored, its team as a graph, its versions; and a chat
 * with it, to try it. */
import { useState } from "preact/hooks";
import { api, ApiError, data, type Definition } from "../../api";
import { chosen, go, query, to } from "../../route";
import { may } from "../../session";
import { ConfirmButton, Empty, Loading, PageHead, Problem, Show, Tabs, tell, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { agent, agentPath, chosenVisibility, contentOf, mayChange } from "./definition";
import { EditDefinition } from "./edit";
import { TeamGraph } from "./graph";
import { TryOut } from "./try-out";
import { Versions } from "./versions";

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
