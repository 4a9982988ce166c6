/** An MCP server: whether it answers, what tools it has, and a call of one to try it. */
import { useState } from "preact/hooks";
import { ApiError } from "../../api";
import { Button, Problem, Select } from "../../ui";
import { t } from "../../words";
import { Health } from "./health";
import { invoke, TryTool } from "./try-tool";

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
  const [error, setError] = useState<unknown>(null);
  const [chosen, setChosen] = useState("");
  const look = async () => {
    setError(null);
    try {
      const found = await toolsOf(name);
      setTools(found);
      setChosen(found[0] ?? "");
    } catch (failed) {
      setTools(null);
      setError(failed);
    }
  };
  return (
    <>
      <h3>{t("tools.health")}</h3>
      <p class="quiet">{t("tools.healthHint")}</p>
      <Health of={{ id: name, owner: "tenant" }} />
      <div>
        <Button onClick={look}>{t("tools.listNow")}</Button>
      </div>
      {error !== null && <Problem error={error} />}
      <p role="status">{tools && <span class="status completed">{t("tools.answers", { n: tools.length })}</span>}</p>
      {tools?.length ? (
        <>
          <Select label={t("tools.ofServer")} value={chosen} options={tools.map((each) => [each, each] as const)} onValue={setChosen} />
          <TryTool key={chosen} name={chosen} config={null} />
        </>
      ) : (
        <p class="quiet">{t("tools.askFirst")}</p>
      )}
    </>
  );
}
