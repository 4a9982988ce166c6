/** Calls a tool once, outside of any run, with arguments by its schema. */
import { useState } from "preact/hooks";
import { api, data, type Posted } from "../../api";
import { Area, Button, duration, Field, Form, jsonOf, objectOf, optionsOf, Select } from "../../ui";
import type { Data } from "../../ui/editor/places";
import { Code } from "../../ui/markdown";
import { t } from "../../words";

interface Parameter {
  name: string;
  type: string;
  description: string;
  required: boolean;
  choices: readonly unknown[];
}

/** The parameters of a tool: its config has a list of them, or a JSON Schema of an object. */
function parametersOf(config: Data): Parameter[] {
  const given = config["parameters"];
  const required = (given as Data | undefined)?.["required"];
  const named = Array.isArray(given)
    ? given.map((each: Data) => [String(each["name"]), each, each["required"] === true] as const)
    : Object.entries((given as { properties?: Record<string, Data> } | undefined)?.properties ?? {}).map(([name, each]) => [name, each, Array.isArray(required) && required.includes(name)] as const);
  return named.map(([name, each, needed]) => ({
    name,
    type: String([each["type"] ?? "string"].flat()[0]),
    description: String(each["description"] ?? ""),
    required: needed,
    choices: Array.isArray(each["enum"]) ? each["enum"] : [],
  }));
}

/** What was typed for a parameter, as its type has it; undefined: nothing was. What is no number stays a text, which the
 * tool refuses in its own words. */
function valueOf({ type }: Parameter, text: string): unknown {
  if (text === "") return undefined;
  if (type === "boolean") return text === "true";
  return type === "string" ? text : jsonOf(text);
}

type Result = Posted<"/v1/tools/{name}/invoke">;

export const invoke = (name: string, values: Data): Promise<Result> => data(api.POST("/v1/tools/{name}/invoke", { params: { path: { name } }, body: { arguments: values as never } }));

function Argument({ parameter, value, onValue }: { parameter: Parameter; value: string; onValue: (value: string) => void }) {
  const { name, type, description, required } = parameter;
  const choices = type === "boolean" ? [true, false] : parameter.choices;
  const label = [name, required ? "*" : "", description && `– ${description}`].filter(Boolean).join(" ");
  if (choices.length) return <Select label={label} value={value} options={[["", t("tools.notGiven")], ...optionsOf(choices.map(String))]} onValue={onValue} />;
  return <Field label={label} value={value} required={required} placeholder={type} onValue={onValue} />;
}

function Told({ result }: { result: Result }) {
  return (
    <section aria-labelledby="result" class={result.is_error ? "problem" : ""} role="status">
      <h2 id="result">
        {result.is_error ? t("tools.failed") : t("is.result")} <span class="quiet">{t("tools.within", { time: duration(result.seconds) })}</span>
      </h2>
      <Code text={result.content} />
      <p class="quiet">{t("tools.counted")}</p>
    </section>
  );
}

/** `config`: null where the schema is not known, as of a tool of an MCP server: arguments are JSON then. */
export function TryTool({ name, config }: { name: string; config: Data | null }) {
  const parameters = config === null ? [] : parametersOf(config);
  const [typed, setTyped] = useState<Readonly<Record<string, string>>>({});
  const [json, setJson] = useState<string | null>(config === null ? "{}" : null);
  const [result, setResult] = useState<Result | null>(null);
  const byFields = () => Object.fromEntries(parameters.map((each) => [each.name, valueOf(each, typed[each.name] ?? "")] as const).filter(([, value]) => value !== undefined));
  const call = async () => {
    setResult(null);
    const values = json === null ? byFields() : objectOf(json);
    if (typeof values === "string") throw new Error(values);
    setResult(await invoke(name, values));
  };
  return (
    <>
      <Form submit={t("tools.call")} onSubmit={call}>
        {json === null ? (
          parameters.map((each) => <Argument key={each.name} parameter={each} value={typed[each.name] ?? ""} onValue={(value) => setTyped((old) => ({ ...old, [each.name]: value }))} />)
        ) : (
          <Area label={t("tools.asJson")} rows={6} value={json} onValue={setJson} />
        )}
        {config !== null && (
          <div>
            <Button kind="ghost" pressed={json !== null} onClick={() => setJson(json === null ? JSON.stringify(byFields(), null, 2) : null)}>
              {t("tools.asJson")}
            </Button>
          </div>
        )}
      </Form>
      {result && <Told result={result} />}
    </>
  );
}
