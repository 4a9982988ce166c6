/** A tool that is registered: an HTTP endpoint, or an MCP server. */
import { useState } from "preact/hooks";
import { api, data } from "../../api";
import { go, to } from "../../route";
import { Field, optionsOf, PageHead, Select, tell } from "../../ui";
import { t } from "../../words";
import { Config } from "./config";
import type { Kind } from "./tool";

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
