/** The tools that agents may have: what the tenant has registered, with how its calls went, and what the server offers
 * besides; one of them, an HTTP endpoint or an MCP server, with what it calls, and a call to try it; or a new one. */
import { useState } from "preact/hooks";
import { api, data, type Listed } from "../../api";
import { go, path, query, to } from "../../route";
import { may } from "../../session";
import { Button, ConfirmButton, count, duration, Empty, Field, Figures, LinkButton, optionsOf, PageHead, paged, Select, Show, Table, tell, Time, useListing, useLoaded, type Column } from "../../ui";
import { t } from "../../words";
import { Offers, toolsOf } from "../agents/offers";
import { Config } from "./config";
import { Servers, TryServer } from "./servers";
import { TryTool } from "./try-tool";
import "../agents/agents.css";
import "./tools.css";

type Tool = Listed<"/v1/tools">;
type Kind = Tool["type"];

/** The share of calls that failed: `3 (12 %)`. */
function failuresOf({ calls, failures }: Tool["statistics"]): string {
  return calls && failures ? `${failures} (${Math.round((100 * failures) / calls)} %)` : String(failures);
}

const seconds = (value: number | null) => (value === null ? "–" : duration(value));

const columns = (): Column<Tool>[] => [
  { head: t("is.name"), cell: (each) => <strong dir="auto">{each.id}</strong>, width: "minmax(8rem, 1.5fr)" },
  { head: t("is.type"), cell: (each) => <span class="badge">{t(`tools.type.${each.type}`)}</span>, width: "8.5rem" },
  { head: t("agents.description"), cell: (each) => <bdi>{String((each.config as { description?: string }).description ?? "")}</bdi>, width: "minmax(0, 2.5fr)", wide: true },
  { head: t("tools.calls"), cell: (each) => count(each.statistics.calls), width: "6rem", numeric: true, wide: true },
  { head: t("tools.failures"), cell: (each) => failuresOf(each.statistics), width: "6.5rem", numeric: true, wide: true },
  { head: t("tools.half"), cell: (each) => seconds(each.statistics.p50_seconds), width: "7rem", numeric: true, wide: true },
  { head: t("tools.most"), cell: (each) => seconds(each.statistics.p95_seconds), width: "7rem", numeric: true, wide: true },
  { head: t("is.version"), cell: (each) => each.version, width: "4.5rem", numeric: true, wide: true },
  { head: t("agents.changed"), cell: (each) => <Time at={each.created_at} />, width: "8rem", wide: true },
];

function OfServer({ registered }: { registered: readonly Tool[] }) {
  const offered = useLoaded(toolsOf, []);
  const own = new Set(registered.map(({ id }) => id));
  const others = offered.value && offered.value.filter(({ id }) => !own.has(id));
  return <Offers title={t("tools.offered")} of={{ ...offered, value: others }} />;
}

function ToolList() {
  const listing = useListing<Tool>((after) => data(api.GET("/v1/tools", { params: { query: paged(after) } })), []);
  return (
    <div class="page agents">
      <PageHead title={t("nav.tools")}>
        {may("tools:register") && <LinkButton href={to(["tools"], { new: "1" })}>{t("tools.register")}</LinkButton>}
      </PageHead>
      <Table label={t("tools.registered")} columns={columns()} listing={listing} href={(each) => to(["tools", each.id])} empty={<Empty title={t("tools.none")}>{t("tools.noneHint")}</Empty>} />
      <Servers />
      {may("chat") && <OfServer registered={listing.rows} />}
    </div>
  );
}

function Statistics({ of }: { of: Tool["statistics"] }) {
  return (
    <Figures
      of={[
        { name: t("tools.calls"), value: count(of.calls) },
        { name: t("tools.failures"), value: failuresOf(of) },
        { name: t("tools.half"), value: seconds(of.p50_seconds) },
        { name: t("tools.most"), value: seconds(of.p95_seconds) },
        { name: t("mem.since"), value: <Time at={of.since} /> },
      ]}
    />
  );
}

/** How often the statistics are looked at again. */
const SECONDS = 10;

function ToolPage({ name }: { name: string }) {
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

function NewTool() {
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

/** `/tools`, and `/tools/NAME` of one that the tenant has registered. */
export default function Tools() {
  const name = path.value[1];
  if (name !== undefined) return <ToolPage key={name} name={name} />;
  return query.value.has("new") ? <NewTool /> : <ToolList />;
}
