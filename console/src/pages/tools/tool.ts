/** Registered tools, as the pages read them. */
import type { Listed } from "../../api";
import { duration, jsonOf } from "../../ui";
import type { Data } from "../../ui/editor/places";

export type Tool = Listed<"/v1/tools">;
export type Kind = Tool["type"];

export interface Parameter {
  name: string;
  type: string;
  description: string;
  required: boolean;
  choices: readonly unknown[];
}

/** The parameters of a tool: its config has a list of them, or a JSON Schema of an object. */
export function parametersOf(config: Data): Parameter[] {
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
export function valueOf({ type }: Parameter, text: string): unknown {
  if (text === "") return undefined;
  if (type === "boolean") return text === "true";
  return type === "string" ? text : jsonOf(text);
}

/** The share of calls that failed: `3 (12 %)`. */
export function failuresOf({ calls, failures }: Tool["statistics"]): string {
  return calls && failures ? `${failures} (${Math.round((100 * failures) / calls)} %)` : String(failures);
}

export const seconds = (value: number | null) => (value === null ? "–" : duration(value));
