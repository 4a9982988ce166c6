/** JSON as a tree that opens and closes. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../words";
import { Button } from "./controls";

/** What a text of JSON stands for. One that is none stands for itself. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** The JSON object of a text, or what is wrong with it. */
export function objectOf(text: string): Record<string, unknown> | string {
  try {
    const value = JSON.parse(text) as unknown;
    return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : t("json.none", { error: text.slice(0, 40) });
  } catch (error) {
    return t("json.none", { error: error instanceof Error ? error.message : "" });
  }
}

const MANY = 200;

function leaf(value: unknown): ComponentChildren {
  return <span class={`json-${value === null ? "null" : typeof value}`}>{JSON.stringify(value)}</span>;
}

/** `depth`: how many levels are open at first. */
export function Json({ value, name, depth = 2 }: { value: unknown; name?: string; depth?: number }) {
  const [most, setMost] = useState(MANY);
  const head = name === undefined ? null : <span class="json-name">{name}: </span>;
  if (value === null || typeof value !== "object") {
    return (
      <div class="json">
        {head}
        {leaf(value)}
      </div>
    );
  }
  const entries = Object.entries(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  return (
    <details class="json" open={depth > 0}>
      <summary>
        {head}
        <span class="quiet">{`${open}${entries.length}${close}`}</span>
      </summary>
      {entries.slice(0, most).map(([key, inner]) => (
        <Json key={key} name={key} value={inner} depth={depth - 1} />
      ))}
      {entries.length > most && <Button onClick={() => setMost(Infinity)}>{t("do.showAll")}</Button>}
    </details>
  );
}
