/** What a text of YAML or JSON, which is a part of it, holds; and where in the text each part stands. */
import { isAlias, isMap, isScalar, isSeq, parseDocument, stringify, type Document } from "yaml";

export type Format = "yaml" | "json";
export type Path = readonly (string | number)[];
export type Data = Record<string, unknown>;

export interface Span {
  from: number;
  to: number;
}

/** Something wrong with a text: underlined in it, and listed below it. */
export interface Trouble extends Span {
  text: string;
  severity: "error" | "warning";
}

export interface Read {
  doc: Document;
  /** null: it is no mapping, or cannot be read. */
  value: Data | null;
  troubles: Trouble[];
}

export function write(value: unknown, format: Format): string {
  return format === "json" ? `${JSON.stringify(value, null, 2)}\n` : stringify(value, { lineWidth: 100 });
}

export function read(text: string): Read {
  const doc = parseDocument(text, { prettyErrors: false, logLevel: "silent" }) as Document;
  const troubles: Trouble[] = doc.errors.map(({ message, pos }) => ({ ...oneLine(text, pos[0], pos[1]), text: message, severity: "error" }));
  let value: unknown = null;
  try {
    value = doc.toJS();
  } catch (error) {
    // Aliases that stand for too much.
    troubles.push({ ...oneLine(text, 0, text.length), text: String(error), severity: "error" });
  }
  return { doc, value: value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Data) : null, troubles };
}

/** What is underlined of a part: up to the end of its first line, and one letter at least. */
function oneLine(text: string, from: number, to: number): Span {
  const start = Math.min(from, Math.max(0, text.length - 1));
  const end = text.indexOf("\n", start + 1);
  return { from: start, to: Math.min(text.length, Math.max(start + 1, Math.min(to, end < 0 ? text.length : end))) };
}

function rangeOf(node: unknown): readonly [number, number] | null {
  const range = (node as { range?: [number, number, number] | null } | null)?.range;
  return range ? [range[0], range[1]] : null;
}

export const keyOf = (key: unknown): string => String(isScalar(key) ? key.value : key);

/** Where the part at a path stands; of what is not there, what it is missing in. */
export function spanOf(text: string, doc: Document, path: Path): Span {
  let node: unknown = doc.contents;
  let found: readonly [number, number] = rangeOf(node) ?? [0, 0];
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(doc);
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => keyOf(key) === String(step));
      const key = rangeOf(pair?.key);
      if (!pair || !key) break;
      found = isScalar(pair.value) ? [key[0], rangeOf(pair.value)?.[1] ?? key[1]] : key;
      node = pair.value;
    } else if (isSeq(node)) {
      node = node.items[Number(step)];
      const item = rangeOf(node);
      if (!item) break;
      found = item;
    } else break;
  }
  return oneLine(text, found[0], found[1]);
}

/** A field as the server writes it, `definition.agents.writer.tools[0]`, as a path below its first name. */
export function pathOf(field: string): Path {
  return [...field.matchAll(/\.([^.[\]]+)|\[(\d+)\]/g)].map(([, name, index]) => name ?? Number(index));
}

const TOLD = /(?:^|; )`([a-z_]+[^`]*)`:? (.*?)(?=; `[a-z_]+[.`[]|; and \d+ more$|$)/gs;

/** What a server says of the fields of a document (`` `definition.agents.x` must be …; `…` … ``), each at its place. */
export function troublesOf(told: string, severity: Trouble["severity"], text: string, doc: Document): Trouble[] {
  const each = [...told.matchAll(TOLD)].map(([, field = "", what = ""]) => ({ ...spanOf(text, doc, pathOf(field)), text: `${field.replace(/^\w+\.?/, "")} ${what}`.trim(), severity }));
  return each.length ? each : [{ ...spanOf(text, doc, []), text: told, severity }];
}
