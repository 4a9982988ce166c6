/** MCP servers: whether one answers, what tools it has, and a call of one to try it. */
import { useState } from "preact/hooks";
import { api, ApiError, data, type Listed } from "../../api";
import { may } from "../../session";
import { allOf, Button, duration, Form, optionsOf, paged, Problem, Select, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { invoke, TryTool } from "./try-tool";

type Server = Listed<"/v1/mcp/servers">;

const check = ({ id, owner }: Pick<Server, "id" | "owner">) => data(api.POST("/v1/mcp/servers/{server}/check", { params: { path: { server: id }, query: { owner } } }));

function Health({ of }: { of: Pick<Server, "id" | "owner"> }) {
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

/** The tools of a server, as of the connection that the API's process has, or makes. Where there is none, its only tool
 * has this name, and says why; else the refusal of that name lists those that there are. Throws what was said. */
async function toolsOf(name: string): Promise<string[]> {
  let told: string;
  try {
    told = (await invoke(`${name}__unavailable`, {})).content;
  } catch (error) {
    const listed = error instanceof ApiError && error.status === 404 ? /none of that name: (.*); invoke one of them$/s.exec(error.message) : null;
    if (!listed?.[1]) throw error;
    return listed[1] === "none" ? [] : listed[1].split(", ");
  }
  throw new Error(told);
}

export function TryServer({ name }: { name: string }) {
  const [tools, setTools] = useState<readonly string[] | null>(null);
  const [chosen, setChosen] = useState("");
  const look = async () => {
    setTools(null);
    const found = await toolsOf(name);
    setTools(found);
    setChosen(found[0] ?? "");
  };
  return (
    <>
      <h3>{t("tools.health")}</h3>
      <p class="quiet">{t("tools.healthHint")}</p>
      <Health of={{ id: name, owner: "tenant" }} />
      <Form kind="plain" submit={t("tools.listNow")} onSubmit={look} />
      <p role="status">{tools && <span class="status completed">{t("tools.answers", { n: tools.length })}</span>}</p>
      {tools?.length ? (
        <>
          <Select label={t("tools.ofServer")} value={chosen} options={optionsOf(tools)} onValue={setChosen} />
          <TryTool key={chosen} name={chosen} config={null} />
        </>
      ) : (
        <p class="quiet">{t("tools.askFirst")}</p>
      )}
    </>
  );
}
