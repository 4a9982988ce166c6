/** The editor of a definition: its text, how it is written, and what the server says of it. */
import { useEffect, useState } from "preact/hooks";
import { api, ApiError, data } from "../../api";
import { Button, Problem, Select, useLoaded } from "../../ui";
import { Editor } from "../../ui/editor";
import type { Schema } from "../../ui/editor/completion";
import { read, troublesOf, write, type Data, type Format, type Span, type Trouble } from "../../ui/editor/places";
import { t } from "../../words";
import type { Visibility } from "./definition";
import { toolsOf } from "./offers";

interface Check {
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
function useCheck(text: string, name: string, visibility: Visibility, asks: boolean): Check {
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

const FORMATS = [["yaml", "YAML"], ["json", "JSON"]] as const;

/** How a text is written: as JSON where its first letter says so. */
const formatOf = (text: string): Format => (text.trimStart().startsWith("{") ? "json" : "yaml");

function Troubles({ text, troubles, onShow }: { text: string; troubles: readonly Trouble[]; onShow: (span: Span) => void }) {
  return (
    <ul class="troubles" aria-label={t("agents.troubles")}>
      {troubles.map((each, n) => (
        <li key={n} class={each.severity}>
          <Button kind="ghost" onClick={() => onShow({ ...each })}>
            {t("agents.line", { n: text.slice(0, each.from).split("\n").length })}
          </Button>
          <span>
            <span class="unseen">{t(`agents.${each.severity}`)}: </span>
            <bdi>{each.text}</bdi>
          </span>
        </li>
      ))}
    </ul>
  );
}

function told({ state, troubles }: Check): string {
  if (state !== "done") return state === "checking" ? t("agents.checking") : t("agents.unchecked");
  return troubles.length ? t("agents.found", { n: troubles.length }) : t("agents.valid");
}

interface EditingProps {
  /** What it defines, and for whom. */
  name: string;
  visibility: Visibility;
  text: string;
  /** null: it may be read only. */
  onText: ((text: string) => void) | null;
  children?: preact.ComponentChildren;
}

/** `children`: what else stands in the bar over the text. */
export function Editing({ name, visibility, text, onText, children }: EditingProps) {
  const check = useCheck(text, name, visibility, onText !== null);
  const [shown, setShown] = useState<Span | null>(null);
  const schema = useLoaded(() => data(api.GET("/v1/agents/schema")), []);
  const tools = useLoaded(toolsOf, []);
  const format = formatOf(text);
  const turn = (chosen: Format) => {
    const { value } = read(text);
    if (value && chosen !== format) onText?.(write(value, chosen));
  };
  return (
    <div class="editing">
      <div class="editing-bar">
        {onText && (
          <>
            <Select label={t("agents.format")} hideLabel value={format} options={FORMATS} onValue={turn} />
            <span role="status" class={`checked ${check.state} ${check.troubles.some((each) => each.severity === "error") ? "wrong" : ""}`}>
              {told(check)}
            </span>
          </>
        )}
        {children}
      </div>
      <Editor {...{ text, format, shown }} label={t("agents.tab.definition")} troubles={check.troubles} schema={schema.value as Schema | null} tools={tools.value?.map(({ id }) => id) ?? []} {...(onText ? { onText } : {})} />
      {onText && <Troubles text={text} troubles={check.troubles} onShow={setShown} />}
      {check.error !== null && <Problem error={check.error} />}
    </div>
  );
}
