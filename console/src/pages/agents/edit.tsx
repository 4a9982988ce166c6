/** A definition is written: a new one, or a new version of a stored one, unless somebody else has stored one meanwhile. */
import { useState } from "preact/hooks";
import { api, ApiError, data, type Definition } from "../../api";
import { go } from "../../route";
import { may } from "../../session";
import { Button, Field, optionsOf, PageHead, Select, tell } from "../../ui";
import { Diff } from "../../ui/diff";
import { write } from "../../ui/editor/places";
import { t } from "../../words";
import { agent, agentPath, contentOf, mayChange, same, type Visibility } from "./definition";
import { Editing, valueOf } from "./editing";

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
