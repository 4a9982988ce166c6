/** Calls a tool once, outside of any run, with arguments by its schema. */
import { useState } from "preact/hooks";
import { api, data, type Posted } from "../../api";
import { Area, Button, duration, Field, Form, objectOf, optionsOf, Select } from "../../ui";
import type { Data } from "../../ui/editor/places";
import { Code } from "../../ui/markdown";
import { t } from "../../words";
import { parametersOf, valueOf, type Parameter } from "./tool";

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
