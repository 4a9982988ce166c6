/** Settings that are stored for an environment, their history, and a way back. */
import { useState } from "preact/hooks";
import { api, data, type Got, type Listed } from "../../api";
import { asked, search } from "../../route";
import { allOf, Area, ConfirmButton, Empty, Facts, Field, FormButton, jsonOf, optionsOf, paged, Rest, Select, Show, Time, useListing, useLoaded, type Given } from "../../ui";
import { t } from "../../words";

type Config = Got<"/v1/config/{environment}">;
type Version = Listed<"/v1/config/{environment}/versions">;

const shown = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

/** Store another value of a setting; null: none any more. */
async function put({ environment, version }: Config, name: string, value: unknown): Promise<void> {
  await data(api.PATCH("/v1/config/{environment}", { params: { path: { environment } }, body: { values: { [name]: value }, version } }));
}

function SettingFields({ config, first }: { config: Config; first: string | undefined }) {
  const [name, setName] = useState(first ?? config.settable[0] ?? "");
  return (
    <>
      <Select label={t("ops.setting")} name="name" value={name} options={optionsOf(config.settable)} onValue={setName} />
      <Area label={t("ops.value")} name="text" value={first ? shown(config.values[first]) : ""} required />
      <p class="quiet">{t("ops.valueHow", { variable: `DRSAI_${name.toUpperCase()}` })}</p>
    </>
  );
}

/** What a version has changed, against the one before it. */
function Changes({ version, before }: { version: Version; before: Version | undefined }) {
  return (
    <pre class="diff" tabIndex={0}>
      {Object.entries(version.changed ?? {}).map(([name, value]) => (
        <div key={name}>
          {before && name in before.values && <del>{`- ${name}: ${shown(before.values[name])}\n`}</del>}
          {value !== null && <ins>{`+ ${name}: ${shown(value)}\n`}</ins>}
        </div>
      ))}
    </pre>
  );
}

function History({ config, onDone }: { config: Config; onDone: () => void }) {
  const params = { path: { environment: config.environment } };
  const versions = useListing<Version & { id: string }>((after) => data(api.GET("/v1/config/{environment}/versions", { params: { ...params, query: paged(after, 20) } })), [config.environment, config.version]);
  const back = async (to: number) => {
    await data(api.POST("/v1/config/{environment}/rollback", { params, body: { to, version: config.version } }));
    onDone();
  };
  return (
    <section aria-label={t("mem.history")}>
      <h2>{t("mem.history")}</h2>
      <ol class="versions">
        {versions.rows.map((each, n) => (
          <li key={each.version} class="card">
            <div class="actions">
              <strong>{t("is.versionN", { n: each.version })}</strong>
              <span class="quiet">
                <bdi>{each.set_by}</bdi> · <Time at={each.set_at} />
                {each.restores && ` · ${t("ops.restores", { n: each.restores })}`}
              </span>
              {each.version === config.version ? (
                <span class="badge">{t("is.current")}</span>
              ) : (
                <ConfirmButton of={each.version} title={t("do.rollBack")} text={t("ops.rollbackText", { n: each.version })} onYes={() => back(each.version)} />
              )}
            </div>
            <Changes version={each} before={versions.rows[n + 1]} />
          </li>
        ))}
      </ol>
      <Rest of={versions} />
    </section>
  );
}

/** The button and form to change a setting, or one that is still to be chosen. */
function Change({ config, name: first, onDone }: { config: Config; name?: string; onDone: () => void }) {
  const submit = ({ name = "", text = "" }: Given) => put(config, name, jsonOf(text)).then(onDone);
  return (
    <FormButton {...(first ? { of: first, text: t("do.edit") } : { kind: "primary" })} title={t("ops.set")} onSubmit={submit}>
      <SettingFields config={config} first={first} />
    </FormButton>
  );
}

function Stored({ config, onDone }: { config: Config; onDone: () => void }) {
  const values = Object.entries(config.values).map(([name, value]) => {
    const change = (
      <span class="actions">
        <code class="text">{shown(value)}</code>
        <Change config={config} name={name} onDone={onDone} />
        <ConfirmButton of={name} title={t("ops.unset")} on="×" text={t("ops.unsetText", { name })} onYes={() => put(config, name, null).then(onDone)} />
      </span>
    );
    return [name, change] as const;
  });
  return (
    <>
      {values.length === 0 ? <Empty title={t("ops.noSettings")} /> : <Facts class="facts card" of={values} />}
      <History config={config} onDone={onDone} />
    </>
  );
}

export function Settings() {
  const environment = asked("environment") || "default";
  const known = useLoaded(() => allOf((after) => data(api.GET("/v1/config", { params: { query: paged(after) } }))), []);
  const config = useLoaded(() => data(api.GET("/v1/config/{environment}", { params: { path: { environment } } })), [environment]);
  const names = new Set(["default", environment, ...(known.value ?? []).map((each) => each.environment)]);
  const changed = () => (config.reload(), known.reload());
  return (
    <div class="scroll">
      <div class="filters">
        <Select label={t("ops.environment")} value={environment} options={optionsOf([...names])} onValue={(value) => search({ environment: value })} />
        <FormButton title={t("ops.otherEnvironment")} submit={t("do.open")} onSubmit={async (given) => search(given)}>
          <Field label={t("ops.environment")} name="environment" required autofocus />
        </FormButton>
        {config.value && <Change config={config.value} onDone={changed} />}
        <span class="quiet">{t("ops.settingsHow")}</span>
      </div>
      <Show of={config}>{(now) => <Stored config={now} onDone={changed} />}</Show>
    </div>
  );
}
