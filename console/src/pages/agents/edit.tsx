/** The editor of definitions: a text, how it is written, and what the server says of it, as a new definition, or as a new
 * version of a stored one, unless somebody else has stored one meanwhile. */
import { useEffect, useState } from "preact/hooks";
import { api, ApiError, data, type Definition } from "../../api";
import { go } from "../../route";
import { may } from "../../session";
import { Button, Field, optionsOf, PageHead, Problem, Select, tell, useLoaded } from "../../ui";
import { Diff } from "../../ui/diff";
import { Editor } from "../../ui/editor";
import type { Schema } from "../../ui/editor/completion";
import { read, troublesOf, write, type Data, type Format, type Span, type Trouble } from "../../ui/editor/places";
import { t } from "../../words";
import { agent, agentPath, contentOf, mayChange, same, type Visibility } from "./definition";
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

function valueOf(text: string): Data | null {
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
function Editing({ name, visibility, text, onText, children }: EditingProps) {
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

interface ConflictProps {
  theirs: Definition;
  mine: string;
  onReplace: () => Promise<void>;
  onTake: () => void;
}

/** Somebody has stored another version: what differs, and what to do with it. */
function Conflict({ theirs, mine, onReplace, onTake }: ConflictProps) {
  return (
    <section class="problem conflict" role="alert">
      <p class="problem-title">{t("agents.conflict", { version: theirs.version, by: theirs.created_by })}</p>
      <p>{t("agents.conflictHint")}</p>
      <Diff label={t("agents.conflictDiff")} before={theirs.definition} after={valueOf(mine)} />
      <div class="filters">
        <Button onClick={onReplace}>{t("agents.replace", { version: theirs.version })}</Button>
        <Button onClick={onTake}>{t("agents.take", { version: theirs.version })}</Button>
      </div>
    </section>
  );
}

interface EditProps {
  stored: Definition;
  /** It outlives the form, in whose place another tab may stand; null: nothing is. */
  typed: string | null;
  onTyped: (text: string | null) => void;
  onSaved: (made: Definition) => void;
}

export function EditDefinition({ stored, typed, onTyped, onSaved }: EditProps) {
  const { id: name, visibility, version } = stored;
  const text = typed ?? write(contentOf(stored), "yaml");
  const [theirs, setTheirs] = useState<Definition | null>(null);
  const may = mayChange(visibility);
  const definition = valueOf(text);
  const asStored = same(definition, stored.definition);
  const changed = definition !== null && !asStored;
  const put = async (expected: number) => {
    try {
      const body = { definition: definition as never, visibility, version: expected };
      const made = (await data(api.PUT("/v1/agents/{name}", { params: { path: { name } }, body }))) as Definition;
      setTheirs(null);
      tell(t("agents.saved", { version: made.version }));
      onSaved(made);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 409) throw error;
      const now = await agent(name, visibility);
      if (now.version === expected) throw error;
      setTheirs(now);
    }
  };
  const take = (given: Definition) => {
    setTheirs(null);
    onTyped(null);
    onSaved(given);
  };
  return (
    <>
      {theirs && <Conflict theirs={theirs} mine={text} onReplace={() => put(theirs.version)} onTake={() => take(theirs)} />}
      <Editing name={name} visibility={visibility} text={text} onText={may ? onTyped : null}>
        {may ? (
          <>
            {/^\s*#|\s#\s/m.test(text) && <span class="quiet">{t("agents.comments")}</span>}
            <span class="editing-do">
              {!asStored && <Button onClick={() => onTyped(null)}>{t("agents.undo")}</Button>}
              <Button kind="primary" disabled={!changed} onClick={() => put(version)}>
                {t("do.save")}
              </Button>
            </span>
          </>
        ) : (
          <span class="quiet">{t("agents.readOnly")}</span>
        )}
      </Editing>
    </>
  );
}

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
