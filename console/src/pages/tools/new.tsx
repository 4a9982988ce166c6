/** A tool that is registered: an HTTP endpoint, or an MCP server. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import { go, to } from "../../route";
import { Field, Select } from "../../ui/controls";
import { PageHead } from "../../ui/page";
import { tell } from "../../ui/toast";
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
  const options = (["http", "mcp"] as const).map((each) => [each, t(`tools.type.${each}`)] as const);
  return (
    <div class="page agents">
      <PageHead title={t("tools.register")}>
        <Field label={t("agents.name")} value={name} onValue={setName} />
        <Select label={t("tools.type")} value={type} options={options} onValue={setType} />
      </PageHead>
      <Config
        key={type}
        first={JSON.stringify(EXAMPLES[type], null, 2)}
        names={[]}
        onSave={async (config, secrets) => {
          const made = await data(api.POST("/v1/tools", { body: { name, type, config: config as never, secrets } }));
          tell(t("tools.saved", { name, version: made.version }));
          go(to(["tools", name]));
        }}
      />
    </div>
  );
}
