/** Settings that are stored for an environment, their history, and a way back. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import type { Got, Listed } from "../../api/shapes";
import { query, search } from "../../route";
import { Area, Button, Field, Select } from "../../ui/controls";
import { ConfirmButton, DialogButton, Form } from "../../ui/form";
import { paged, useListing, useLoaded } from "../../ui/load";
import { Empty, Loading, Problem } from "../../ui/state";
import { Time } from "../../ui/values";
import { t } from "../../words";

type Config = Got<"/v1/config/{environment}">;
type Version = Listed<"/v1/config/{environment}/versions">;

const shown = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

/** A value as it was typed: JSON, else a text as its variable would have it. */
function valueOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function SettingForm({ config, name: given, onDone }: { config: Config; name: string; onDone: () => void }) {
  const [name, setName] = useState(given || (config.settable[0] ?? ""));
  const [text, setText] = useState(given ? shown(config.values[given]) : "");
  const submit = async () => {
    const params = { path: { environment: config.environment } };
    await data(api.PATCH("/v1/config/{environment}", { params, body: { values: { [name]: valueOf(text) }, version: config.version } }));
    onDone();
  };
  return (
    <Form onSubmit={submit}>
      <Select label={t("ops.setting")} value={name} options={config.settable.map((each) => [each, each] as const)} onValue={setName} />
      <Area label={t("ops.value")} value={text} onValue={setText} required />
      <p class="quiet">{t("ops.valueHow", { variable: `DRSAI_${name.toUpperCase()}` })}</p>
    </Form>
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
      {versions.error !== null && <Problem error={versions.error} retry={versions.reload} />}
      <ol class="versions">
        {versions.rows.map((each, n) => (
          <li key={each.version} class="card">
            <div class="actions">
              <strong>{t("ops.version", { n: each.version })}</strong>
              <span class="quiet">
                <bdi>{each.set_by}</bdi> · <Time at={each.set_at} />
                {each.restores && ` · ${t("ops.restores", { n: each.restores })}`}
              </span>
              {each.version === config.version ? (
                <span class="badge">{t("mem.current")}</span>
              ) : (
                <ConfirmButton kind="ghost" label={`${t("ops.rollback")}: ${each.version}`} title={t("ops.rollback")} text={t("ops.rollbackText", { n: each.version })} onYes={() => back(each.version)}>
                  {t("ops.rollback")}
                </ConfirmButton>
              )}
            </div>
            <Changes version={each} before={versions.rows[n + 1]} />
          </li>
        ))}
      </ol>
      {versions.hasMore && <Button onClick={versions.more}>{t("do.more")}</Button>}
    </section>
  );
}

function EnvironmentForm({ onDone }: { onDone: () => void }) {
  const [environment, setEnvironment] = useState("");
  return (
    <Form submit={t("do.open")} onSubmit={async () => (search({ environment }), onDone())}>
      <Field label={t("ops.environment")} value={environment} onValue={setEnvironment} required autofocus />
    </Form>
  );
}

export function Settings() {
  const environment = query.value.get("environment") ?? "default";
  const known = useLoaded(() => data(api.GET("/v1/config", { params: { query: { limit: 100 } } })), []);
  const config = useLoaded(() => data(api.GET("/v1/config/{environment}", { params: { path: { environment } } })), [environment]);
  const now = config.value;
  const names = [...new Set(["default", environment, ...(known.value?.data ?? []).map((each) => each.environment)])];
  const changed = () => (config.reload(), known.reload());
  const form = (name: string) => (close: () => void) => now && <SettingForm config={now} name={name} onDone={() => (close(), changed())} />;
  const unset = async (name: string) => {
    await data(api.PATCH("/v1/config/{environment}", { params: { path: { environment } }, body: { values: { [name]: null }, version: now?.version ?? null } }));
    changed();
  };
  return (
    <div class="scroll">
      <div class="filters">
        <Select label={t("ops.environment")} value={environment} options={names.map((each) => [each, each] as const)} onValue={(value) => search({ environment: value })} />
        <DialogButton title={t("ops.otherEnvironment")}>{(close) => <EnvironmentForm onDone={close} />}</DialogButton>
        {now && (
          <DialogButton kind="primary" title={t("ops.set")}>
            {form("")}
          </DialogButton>
        )}
        <span class="quiet">{t("ops.settingsHow")}</span>
      </div>
      {config.error !== null && <Problem error={config.error} retry={config.reload} />}
      {now === null ? (
        config.error === null && <Loading />
      ) : (
        <>
          {Object.keys(now.values).length === 0 && <Empty title={t("ops.noSettings")} />}
          <dl class="facts card">
            {Object.entries(now.values).map(([name, value]) => [
              <dt key={name} class="mono">
                {name}
              </dt>,
              <dd key={`${name} value`} class="actions">
                <code class="text">{shown(value)}</code>
                <DialogButton kind="ghost" label={`${t("do.edit")}: ${name}`} title={t("ops.set")} text={t("do.edit")}>
                  {form(name)}
                </DialogButton>
                <ConfirmButton kind="ghost" label={`${t("ops.unset")}: ${name}`} title={t("ops.unset")} text={t("ops.unsetText", { name })} onYes={() => unset(name)}>
                  ×
                </ConfirmButton>
              </dd>,
            ])}
          </dl>
          <History config={now} onDone={changed} />
        </>
      )}
    </div>
  );
}
