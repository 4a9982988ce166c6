/** A registered tool, an HTTP endpoint or an MCP server: how its calls went, what it calls, and a call to try it. Or a new one. */
import { useState } from "preact/hooks";
import { api, data } from "../../api";
import { go, to } from "../../route";
import { may } from "../../session";
import { Button, ConfirmButton, count, Field, Figures, optionsOf, PageHead, Select, Show, tell, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { Config } from "./config";
import { TryServer } from "./servers";
import { failuresOf, seconds, type Kind, type Tool } from "./tool";
import { TryTool } from "./try-tool";

function Statistics({ of }: { of: Tool["statistics"] }) {
  return (
    <Figures
      of={[
        { name: t("tools.calls"), value: count(of.calls) },
        { name: t("tools.failures"), value: failuresOf(of) },
        { name: t("tools.half"), value: seconds(of.p50_seconds) },
        { name: t("tools.most"), value: seconds(of.p95_seconds) },
        { name: t("tools.since"), value: <Time at={of.since} /> },
      ]}
    />
  );
}

/** How often the statistics are looked at again. */
const SECONDS = 10;

export function ToolPage({ name }: { name: string }) {
  const loaded = useLoaded(() => data(api.GET("/v1/tools/{name}", { params: { path: { name } } })), [name], SECONDS);
  return <Show of={loaded}>{(tool) => <Shown name={name} tool={tool} onSaved={loaded.set} />}</Show>;
}

function Shown({ name, tool, onSaved }: { name: string; tool: Tool; onSaved: (tool: Tool) => void }) {
  // The version that is being changed: another one, of somebody else, does not take what is typed away.
  const [version, setVersion] = useState(tool.version);
  const remove = async () => {
    await data(api.DELETE("/v1/tools/{name}", { params: { path: { name } } }));
    tell(t("is.deleted", { name }));
    go(to(["tools"]));
  };
  const save = async (config: object, secrets: Record<string, string>) => {
    const made = await data(api.PUT("/v1/tools/{name}", { params: { path: { name } }, body: { type: tool.type, config: config as never, secrets } }));
    tell(t("tools.saved", { name, version: made.version }));
    onSaved(made);
    setVersion(made.version);
  };
  const mayRegister = may("tools:register");
  return (
    <div class="page agents">
      <PageHead title={name}>
        <span class="badge">{t(`tools.type.${tool.type}`)}</span>
        <span class="quiet">
          {t("agents.versionBy", { version: tool.version, by: tool.created_by })} <Time at={tool.created_at} />
        </span>
        {mayRegister && <ConfirmButton title={t("tools.delete")} on={t("do.delete")} text={t("tools.deleteText", { name })} onYes={remove} />}
      </PageHead>
      <Statistics of={tool.statistics} />
      <div class="beside">
        <div class="beside-main">
          {tool.version > version && (
            <div class="problem" role="alert">
              <p>{t("agents.conflict", { by: tool.created_by, version: tool.version })}</p>
              <Button onClick={() => setVersion(tool.version)}>{t("agents.take", { version: tool.version })}</Button>
            </div>
          )}
          <Config key={version} first={JSON.stringify(tool.config, null, 2)} names={tool.secrets} onSave={mayRegister ? save : null}>
            <h2>{t("tools.config")}</h2>
          </Config>
        </div>
        <aside class="try" aria-label={t("do.try")}>
          <h2>{t("do.try")}</h2>
          {!mayRegister ? <p class="quiet">{t("tools.mayNot")}</p> : tool.type === "mcp" ? <TryServer name={name} /> : <TryTool name={name} config={tool.config} />}
        </aside>
      </div>
    </div>
  );
}

const EXAMPLES: Record<Kind, unknown> = {
  http: {
    description: "The weather of a city.",
    parameters: [{ name: "city", type: "string", description: "Its name.", required: true }],
    endpoint: { method: "GET", url: "https://api.example.com/v1/cities/{city}" },
  },
  mcp: { url: "https://mcp.example.com/mcp" },
};

export function NewTool() {
  const [name, setName] = useState("");
  const [type, setType] = useState<Kind>("http");
  const save = async (config: object, secrets: Record<string, string>) => {
    const made = await data(api.POST("/v1/tools", { body: { name, type, config: config as never, secrets } }));
    tell(t("tools.saved", { name, version: made.version }));
    go(to(["tools", name]));
  };
  return (
    <div class="page agents">
      <PageHead title={t("tools.register")}>
        <Field label={t("is.name")} value={name} onValue={setName} />
        <Select label={t("is.type")} value={type} options={optionsOf<Kind>(["http", "mcp"], (each) => t(`tools.type.${each}`))} onValue={setType} />
      </PageHead>
      <Config key={type} first={JSON.stringify(EXAMPLES[type], null, 2)} names={[]} onSave={save} />
    </div>
  );
}
