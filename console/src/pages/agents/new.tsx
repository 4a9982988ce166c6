/** A definition that is new. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import { go } from "../../route";
import { may } from "../../session";
import { Button, Field, Select } from "../../ui/controls";
import { PageHead } from "../../ui/page";
import { tell } from "../../ui/toast";
import { t } from "../../words";
import { useCheck, valueOf } from "./check";
import { agentPath, mayChange, type Visibility } from "./definition";
import { Editing } from "./editing";

const example = (name: string) => `# ${t("agents.exampleComment")}
agents:
  ${name}:
    description: ${t("agents.exampleDescription")}
    prompt: You help {{user_id}}. Answer briefly.
`;
const FIRST = "helper";

export function NewAgent() {
  const [name, setName] = useState(FIRST);
  const [visibility, setVisibility] = useState<Visibility>("user");
  const [text, setText] = useState(() => example(FIRST));
  const check = useCheck(text, name, visibility, true);
  const definition = valueOf(text);
  const rename = (chosen: string) => {
    // Until somebody writes, the example has the name that is chosen.
    if (text === example(name)) setText(example(chosen));
    setName(chosen);
  };
  const save = async () => {
    await data(api.POST("/v1/agents", { body: { name, definition: definition as never, visibility } }));
    tell(t("agents.saved", { version: 1 }));
    go(agentPath(name, visibility));
  };
  const options: (readonly [Visibility, string])[] = [["user", t("agents.for.user")], ...(mayChange("tenant") ? [["tenant", t("agents.for.tenant")] as const] : [])];
  return (
    <div class="page agents">
      <PageHead title={t("agents.new")}>
        <Field label={t("agents.name")} value={name} onValue={rename} />
        <Select label={t("agents.for")} value={visibility} options={options} onValue={setVisibility} />
        <Button kind="primary" disabled={!definition || !may("agents:write")} onClick={save}>
          {t("do.save")}
        </Button>
      </PageHead>
      <Editing label={t("agents.text")} text={text} onText={setText} check={check} />
    </div>
  );
}
