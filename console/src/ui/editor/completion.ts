/** What can stand at a place of a document, by its JSON Schema and by what the document names. */
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { isMap, isScalar, isSeq } from "yaml";
import { keyOf, read, type Data, type Format, type Path } from "./places";

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  anyOf?: Schema[];
  oneOf?: Schema[];
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  type?: string | string[];
  description?: string;
}

interface Hole {
  path: Path;
  /** What is wanted there: the name of a field, or its value. */
  as: "key" | "value";
  value: Data;
}

const MARK = "here__";
/** Fields that name agents and teams of the same document, and those that name tools. */
const NAMING = new Set(["participants", "handoffs", "answered_by", "start", "from", "to", "shown", "agent"]);
const OF_TOOLS = new Set(["tools", "builtin", "registered", "tool_choice"]);

function find(node: unknown, path: Path): { path: Path; as: Hole["as"] } | null {
  if (isScalar(node)) return node.value === MARK ? { path, as: "value" } : null;
  if (isSeq(node)) return first(node.items, (each, n) => find(each, [...path, n]));
  if (!isMap(node)) return null;
  return first(node.items, ({ key, value }) => (keyOf(key) === MARK ? { path, as: "key" as const } : find(value, [...path, keyOf(key)])));
}

function first<T, R>(items: readonly T[], look: (item: T, n: number) => R | null): R | null {
  for (const [n, item] of items.entries()) {
    const found = look(item, n);
    if (found) return found;
  }
  return null;
}

/** The places that a word between `from` and `end` may have: on a line of its own it is a field, or an item. */
function holes(text: string, from: number, end: number, format: Format): Hole[] {
  const line = text.slice(text.lastIndexOf("\n", from - 1) + 1, from);
  const rest = (/^[^\n]*/.exec(text.slice(end))?.[0] ?? "").trim();
  const alone = format === "yaml" && /^[\s-]*$/.test(line) && rest === "";
  const word = format === "json" || text[from] === '"' ? `"${MARK}"` : MARK;
  return (alone ? [`${word}:`, ...(line.includes("-") ? [word] : [])] : [word]).flatMap((put) => {
    const { doc, value } = read(text.slice(0, from) + put + text.slice(end));
    const found = find(doc.contents, []);
    return found && value ? [{ ...found, value }] : [];
  });
}

/** The alternatives that a schema stands for; of those that differ by a constant, such as `kind`, what the value says. */
function alternatives(root: Schema, schema: Schema, value: unknown): Schema[] {
  const given = schema.$ref ? (root.$defs?.[schema.$ref.split("/").pop() ?? ""] ?? {}) : schema;
  const inner = given.anyOf ?? given.oneOf;
  const all = inner ? inner.flatMap((each) => alternatives(root, each, value)) : [given];
  if (!inner || value === null || typeof value !== "object") return all;
  const fits = all.filter(({ properties = {} }) => Object.entries(properties).every(([name, { const: fixed }]) => fixed === undefined || (value as Data)[name] === fixed));
  return fits.length ? fits : all;
}

export function schemasAt(root: Schema, path: Path, value: unknown): Schema[] {
  let found = alternatives(root, root, value);
  for (const step of path) {
    value = (value as Data | undefined)?.[step];
    const below = found.flatMap(({ items, properties, patternProperties }) =>
      typeof step === "number" ? [items] : [properties?.[step] ?? Object.entries(patternProperties ?? {}).find(([pattern]) => new RegExp(pattern).test(step))?.[1]],
    );
    found = below.flatMap((each) => (each ? alternatives(root, each, value) : []));
  }
  return found;
}

function kindOf(schema: Schema): string {
  const { $ref, type, anyOf, oneOf } = schema;
  if (anyOf ?? oneOf) return [...new Set((anyOf ?? oneOf ?? []).map(kindOf))].filter((each) => each !== "null").join(" | ");
  return $ref ? "object" : [type ?? (schema.enum ? "string" : "")].flat().join(" | ");
}

function keys(found: readonly Schema[], { path, value }: Hole, quote: (text: string) => string): Completion[] {
  const holder = path.reduce<unknown>((inner, step) => (inner as Data | undefined)?.[step], value) as Data | undefined;
  const fields = new Map(found.flatMap(({ properties = {} }) => Object.entries(properties)));
  return [...fields]
    .filter(([name]) => !(name in (holder ?? {})))
    .map(([name, schema]) => ({
      label: name,
      type: "property",
      detail: kindOf(schema),
      apply: `${quote(name)}: `,
      ...(schema.description ? { info: schema.description } : {}),
    }));
}

function values(found: readonly Schema[], { path, value }: Hole, quote: (text: string) => string, tools: readonly string[]): Completion[] {
  const field = path.findLast((step) => typeof step === "string") ?? "";
  const named = NAMING.has(field) ? [...Object.keys((value["agents"] as Data | null) ?? {}), ...Object.keys((value["teams"] as Data | null) ?? {})] : OF_TOOLS.has(field) ? tools : [];
  const fixed = found.flatMap((each) => [...(each.enum ?? []), ...("const" in each ? [each.const] : []), ...(each.type === "boolean" ? [true, false] : [])]);
  return [...new Set([...named, ...fixed].filter((each) => each !== MARK))].map((each) => ({
    label: String(each),
    type: named.includes(String(each)) ? "variable" : "constant",
    apply: typeof each === "string" ? quote(each) : String(each),
  }));
}

/** Complete by `schema`. `tools`: the names of tools that there are. */
export function complete(schema: Schema, format: Format, tools: readonly string[]) {
  return (context: CompletionContext): CompletionResult | null => {
    const text = context.state.doc.toString();
    const word = context.matchBefore(/"?[\w-]*/);
    const from = word?.from ?? context.pos;
    if (from === context.pos && !context.explicit) return null;
    const end = context.pos + (/^[\w-]*"?/.exec(text.slice(context.pos))?.[0].length ?? 0);
    // A quote that is there already is not written again; the one at the end is.
    const quoted = text[from] === '"';
    const quote = (name: string) => (quoted ? `${name}"` : format === "json" ? `"${name}"` : name);
    const options = holes(text, from, end, format).flatMap((hole) => {
      const found = schemasAt(schema, hole.path, hole.value);
      return hole.as === "key" ? keys(found, hole, quote) : values(found, hole, quote, tools);
    });
    return options.length ? { from: quoted ? from + 1 : from, to: end, options, validFor: /^[\w-]*"?$/ } : null;
  };
}
