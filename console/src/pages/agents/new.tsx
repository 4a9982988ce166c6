/** A definition that is new. */
import { useState } from "preact/hooks";
import { api, data } from "../../api";
import { go } from "../../route";
import { may } from "../../session";
import { Button, Field, optionsOf, PageHead, Select, tell } from "../../ui";
import { t } from "../../words";
import { valueOf } from "./check";
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
  const visibilities = (["user", "tenant"] as const).filter(mayChange);
  return (
    <div class="page agents">
      <PageHead title={t("agents.new")}>
        <Field label={t("is.name")} value={name} onValue={rename} />
        <Select label={t("agents.for")} value={visibility} options={optionsOf<Visibility>(visibilities, (each) => t(`agents.for.${each}`))} onValue={setVisibility} />
        <Button kind="primary" disabled={!definition || !may("agents:write")} onClick={save}>
          {t("do.save")}
        </Button>
      </PageHead>
      <Editing name={name} visibility={visibility} text={text} onText={setText} />
    </div>
  );
}
