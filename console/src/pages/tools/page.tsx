/** One registered tool: how its calls went, what it calls, and a call to try it. */
import { api, data } from "../../api/client";
import { go, to } from "../../route";
import { may } from "../../session";
import { ConfirmButton } from "../../ui/form";
import { useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Loading, Problem } from "../../ui/state";
import { tell } from "../../ui/toast";
import { count, duration, Time } from "../../ui/values";
import { t } from "../../words";
import { Config } from "./config";
import { TryServer } from "./server";
import { failuresOf, type Tool } from "./tool";
import { TryTool } from "./try-tool";

function Statistics({ of: { calls, failures, p50_seconds: half, p95_seconds: most, since } }: { of: Tool["statistics"] }) {
  const figures = [
    [t("tools.calls"), count(calls)],
    [t("tools.failures"), failuresOf({ calls, failures, p50_seconds: half, p95_seconds: most })],
    [t("tools.half"), half === null ? "–" : duration(half)],
    [t("tools.most"), most === null ? "–" : duration(most)],
    [t("tools.since"), <Time at={since} />],
  ] as const;
  return (
    <dl class="tool-figures">
      {figures.map(([name, value]) => (
        <div class="card" key={name}>
          <dt class="quiet">{name}</dt>
          <dd class="figure">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** How often the statistics are looked at again. */
const SECONDS = 10;

export function ToolPage({ name }: { name: string }) {
  const loaded = useLoaded(() => data(api.GET("/v1/tools/{name}", { params: { path: { name } } })), [name], SECONDS);
  const tool = loaded.value;
  if (!tool) return loaded.error === null ? <Loading /> : <Problem error={loaded.error} retry={loaded.reload} />;
  const remove = async () => {
    await data(api.DELETE("/v1/tools/{name}", { params: { path: { name } } }));
    tell(t("tools.deleted", { name }));
    go(to(["tools"]));
  };
  const save = async (config: object, secrets: Record<string, string>) => {
    const made = await data(api.PUT("/v1/tools/{name}", { params: { path: { name } }, body: { type: tool.type, config: config as never, secrets } }));
    tell(t("tools.saved", { name, version: made.version }));
    loaded.set(made);
  };
  const mayRegister = may("tools:register");
  return (
    <div class="page agents">
      <PageHead title={name}>
        <span class="badge">{t(`tools.type.${tool.type}`)}</span>
        <span class="quiet">
          {t("agents.versionBy", { version: tool.version, by: tool.created_by })} <Time at={tool.created_at} />
        </span>
        {mayRegister && (
          <ConfirmButton title={t("tools.delete")} text={t("tools.deleteText", { name })} onYes={remove}>
            {t("do.delete")}
          </ConfirmButton>
        )}
      </PageHead>
      <Statistics of={tool.statistics} />
      <div class="beside">
        <div class="beside-main">
          <Config key={tool.version} first={JSON.stringify(tool.config, null, 2)} names={tool.secrets} onSave={mayRegister ? save : null}>
            <h2>{t("tools.config")}</h2>
          </Config>
        </div>
        <aside class="try" aria-label={t("tools.try")}>
          <h2>{t("tools.try")}</h2>
          {!mayRegister ? <p class="quiet">{t("tools.mayNot")}</p> : tool.type === "mcp" ? <TryServer name={name} /> : <TryTool key={tool.version} name={name} config={tool.config} />}
        </aside>
      </div>
    </div>
  );
}
