/** Whether an MCP server answers: it is asked when somebody wants to know, and what it did then is shown with its age. */
import { useState } from "preact/hooks";
import { api, data, type Listed } from "../../api";
import { may } from "../../session";
import { allOf, Button, duration, paged, Problem, Time, useLoaded } from "../../ui";
import { t } from "../../words";

export type Server = Listed<"/v1/mcp/servers">;

const check = ({ id, owner }: Pick<Server, "id" | "owner">) => data(api.POST("/v1/mcp/servers/{server}/check", { params: { path: { server: id }, query: { owner } } }));

export function Health({ of }: { of: Pick<Server, "id" | "owner"> }) {
  const [told, setTold] = useState<Awaited<ReturnType<typeof check>> | null>(null);
  const [error, setError] = useState<unknown>(null);
  const ask = async () => {
    setError(null);
    await check(of).then(setTold, setError);
  };
  return (
    <>
      <div>
        <Button label={t("tools.askNowOf", { name: of.id })} onClick={ask}>{t("tools.askNow")}</Button>
      </div>
      {error !== null && <Problem error={error} />}
      <div role="status">
        {told && (
          <p>
            <span class={`status ${told.up ? "completed" : "error"}`}>{told.up ? t("tools.up") : t("tools.down")}</span>{" "}
            <span class="quiet">
              {t("tools.within", { time: duration(told.latency_ms / 1000) })} · <Time at={told.asked_at} />
            </span>
            <br />
            <bdi>{told.up ? [t("tools.count", { n: told.tools ?? 0 }), told.version && t("tools.versionOf", { version: told.version })].filter(Boolean).join(" · ") : told.error}</bdi>
          </p>
        )}
      </div>
    </>
  );
}

/** All servers whose tools agents may have, those that the operator has named as well. */
export function Servers() {
  const servers = useLoaded(() => allOf<Server>((after) => data(api.GET("/v1/mcp/servers", { params: { query: paged(after) } }))), []);
  if (servers.error !== null && !servers.value) return <Problem error={servers.error} retry={servers.reload} />;
  if (!servers.value?.length) return null;
  return (
    <section class="offered" aria-labelledby="servers">
      <h2 id="servers">{t("tools.servers")}</h2>
      <ul class="cards offers">
        {servers.value.map((each) => (
          <li class="card" key={`${each.owner} ${each.id}`}>
            <strong dir="auto">{each.id}</strong> <span class="badge">{t(`tools.owner.${each.owner}`)}</span> <code class="quiet">{each.transport}</code>
            {may("tools:register") && <Health of={each} />}
          </li>
        ))}
      </ul>
    </section>
  );
}
