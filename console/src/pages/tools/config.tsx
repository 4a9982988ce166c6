/** What a tool calls, as JSON, and the credentials that it names. */
import { useMemo, useState } from "preact/hooks";
import { ApiError } from "../../api";
import { Button, Field, objectOf, Problem } from "../../ui";
import { Editor } from "../../ui/editor";
import { read, troublesOf, type Data } from "../../ui/editor/places";
import { t } from "../../words";

export type Secret = readonly [name: string, value: string];

function Secrets({ secrets, onSecrets }: { secrets: readonly Secret[]; onSecrets: (secrets: readonly Secret[]) => void }) {
  const put = (at: number, secret: Secret) => onSecrets(secrets.map((each, n) => (n === at ? secret : each)));
  return (
    <fieldset class="secrets">
      <legend>{t("tools.secrets")}</legend>
      <p class="quiet">{t("tools.secretsHint")}</p>
      {secrets.map(([name, value], n) => (
        <div class="filters" key={n}>
          <Field label={t("tools.secretName", { n: n + 1 })} value={name} onValue={(changed) => put(n, [changed, value])} />
          <Field label={t("tools.secretValue", { n: n + 1 })} type="password" autocomplete="off" value={value} onValue={(changed) => put(n, [name, changed])} />
          <Button label={t("tools.removeSecret", { n: n + 1 })} onClick={() => onSecrets(secrets.filter((_, at) => at !== n))}>×</Button>
        </div>
      ))}
      <div>
        <Button onClick={() => onSecrets([...secrets, ["", ""]])}>{t("tools.addSecret")}</Button>
      </div>
    </fieldset>
  );
}

interface ConfigProps {
  first: string;
  names: readonly string[];
  /** null: it may be read only. */
  onSave: ((config: Data, secrets: Record<string, string>) => Promise<void>) | null;
  children?: preact.ComponentChildren;
}

/** `names`: of the credentials that it has; `children`: what is said above. */
export function Config({ first, names, onSave, children }: ConfigProps) {
  const [text, setText] = useState(first);
  const [secrets, setSecrets] = useState<readonly Secret[]>(names.map((name) => [name, ""]));
  const [refused, setRefused] = useState<{ text: string; error: unknown } | null>(null);
  const value = useMemo(() => objectOf(text), [text]);
  const troubles = useMemo(() => {
    const { error } = refused?.text === text ? refused : {};
    const told = typeof value === "string" ? value : error instanceof ApiError && error.param?.startsWith("config") ? error.message : null;
    return told === null ? [] : troublesOf(told, "error", text, read(text).doc);
  }, [text, value, refused]);
  const save = async () => {
    setRefused(null);
    try {
      await onSave?.(value as Data, Object.fromEntries(secrets.filter(([name]) => name)));
    } catch (error) {
      setRefused({ text, error });
    }
  };
  return (
    <div class="editing config">
      {children}
      <Editor label={t("tools.config")} text={text} format="json" troubles={troubles} {...(onSave ? { onText: setText } : {})} />
      {typeof value === "string" && <p class="problem">{value}</p>}
      {refused && <Problem error={refused.error} />}
      {onSave && (
        <>
          <Secrets secrets={secrets} onSecrets={setSecrets} />
          {names.length > 0 && <p class="quiet">{t("tools.secretsAgain")}</p>}
          <div>
            <Button kind="primary" disabled={typeof value === "string"} onClick={save}>{t("do.save")}</Button>
          </div>
        </>
      )}
    </div>
  );
}
