/** Asks the server, while a definition is written, what is wrong with it; nothing is stored. */
import { useEffect, useState } from "preact/hooks";
import { api, ApiError, data } from "../../api";
import { read, troublesOf, type Data, type Trouble } from "../../ui/editor/places";
import { t } from "../../words";
import type { Visibility } from "./definition";

export interface Check {
  state: "checking" | "done" | "failed";
  troubles: readonly Trouble[];
  /** Why the server has not looked at it. */
  error: unknown;
}

const PAUSE = 500;
const NOTHING: Check = { state: "checking", troubles: [], error: null };

async function ask(text: string, name: string, visibility: Visibility): Promise<Check> {
  const { doc, value, troubles } = read(text);
  if (troubles.length) return { state: "done", troubles, error: null };
  if (!value) return { state: "done", troubles: troublesOf(t("agents.noMapping"), "error", text, doc), error: null };
  try {
    const body = { name, definition: value as never, visibility, validate_only: true };
    const told = (await data(api.POST("/v1/agents", { body }))) as { warnings?: string[] };
    return { state: "done", troubles: (told.warnings ?? []).flatMap((each) => troublesOf(each, "warning", text, doc)), error: null };
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 400 || !error.param?.startsWith("definition")) return { state: "failed", troubles: [], error };
    return { state: "done", troubles: troublesOf(error.message, "error", text, doc), error: null };
  }
}

/** What the server says of a text, half a second after it was changed last. `asks`: whether it may be asked. */
export function useCheck(text: string, name: string, visibility: Visibility, asks: boolean): Check {
  const [check, setCheck] = useState(NOTHING);
  useEffect(() => {
    if (!asks) return;
    let current = true;
    setCheck((old) => ({ ...old, state: "checking" }));
    const timer = setTimeout(() => void ask(text, name, visibility).then((made) => current && setCheck(made)), PAUSE);
    return () => ((current = false), clearTimeout(timer));
  }, [text, name, visibility, asks]);
  return check;
}

export function valueOf(text: string): Data | null {
  const { value, troubles } = read(text);
  return troubles.length ? null : value;
}
