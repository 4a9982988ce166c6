/** What is remembered: a list, a search in it, and whether anything is learnt; and one memory, with the words that it comes
 * from and all its versions. */
import { api, ApiError, blob, data, filled, type Listed } from "../../api";
import { asked, chosen, go, path, query, to } from "../../route";
import { may } from "../../session";
import { Area, Button, ConfirmButton, count, Empty, Facts, Field, FormButton, numberOf, optionsOf, PageHead, paged, Problem, save, SearchField, SearchForm, SearchSelect, Select, Show, Table, Tabs, tell, tellError, Time, useListing, useLoaded, type After, type Column, type Given } from "../../ui";
import { t } from "../../words";
import "./memory.css";

type MemoryEntry = Listed<"/v1/memories">;
type Row = MemoryEntry & { score?: number };
const KINDS = ["fact", "preference", "episode"] as const;
const kinds = () => optionsOf(KINDS, (each) => t(`mem.${each}`));

/** Whether what is remembered may be changed: of all users' common memory that takes one scope more. */
const mayWrite = (shared: boolean) => may("memory:write") && (!shared || may("knowledge:write"));
const mayForget = (shared: boolean) => may("memory:delete") && (!shared || may("knowledge:write"));

const columns = (): Column<Row>[] => [
  { head: t("mem.text"), cell: (row) => <bdi title={row.text}>{row.text}</bdi>, width: "4fr" },
  { head: t("is.kind"), cell: (row) => <span class="badge">{t(`mem.${row.kind}`)}</span>, width: "7rem" },
  { head: t("mem.scope"), cell: (row) => row.scope || <span class="quiet">{t("mem.forAll")}</span>, width: "8rem", wide: true },
  { head: t("mem.importance"), cell: (row) => row.importance.toFixed(2), width: "7rem", numeric: true, wide: true },
  { head: t("mem.origin"), cell: (row) => t(`mem.origin.${row.origin}`), width: "9rem", wide: true },
  { head: t("mem.since"), cell: (row) => <Time at={row.valid_from} />, width: "8rem", wide: true },
];

/** The button and form to make a memory, or to change one. */
function MemoryButton({ memory, shared, onDone }: { memory?: MemoryEntry; shared: boolean; onDone: () => void }) {
  const submit = async ({ text = "", kind, importance = "", scope = "" }: Given) => {
    const said = { text, kind: kind as MemoryEntry["kind"], importance: numberOf(importance) };
    const params = { path: { memory_id: memory?.id ?? "" }, query: { shared } };
    await data(memory ? api.PATCH("/v1/memories/{memory_id}", { params, body: said }) : api.POST("/v1/memories", { body: { ...said, scope, shared } }));
    onDone();
  };
  return (
    <FormButton {...(memory ? { title: t("mem.edit"), text: t("do.edit") } : { title: t("mem.new"), kind: "primary" })} onSubmit={submit}>
      <Area label={t("mem.text")} name="text" value={memory?.text ?? ""} required />
      <Select label={t("is.kind")} name="kind" value={memory?.kind ?? "fact"} options={kinds()} />
      <Field label={t("mem.importanceHow")} name="importance" value={String(memory?.importance ?? 0.8)} required />
      {!memory && <Field label={t("mem.scope")} name="scope" placeholder={t("mem.forAll")} />}
    </FormButton>
  );
}

/** Whether this server learns from what one says: a box to tick, unless it is not said who one is. */
function Learning() {
  const settings = useLoaded(() => data(api.GET("/v1/memories/settings")), []);
  const now = settings.value;
  if (now === null) return settings.error === null ? null : <Problem error={settings.error} retry={settings.reload} />;
  if (now.note) return <p class="quiet">{now.note}</p>;
  // What was refused is shown as it is, again.
  const change = (learns: boolean) => data(api.PATCH("/v1/memories/settings", { body: { learns } })).then(settings.set, (error: unknown) => (tellError(error), settings.reload()));
  return (
    <div class="actions">
      <label class="check">
        <input type="checkbox" checked={now.learns} disabled={!may("memory:write")} onChange={(event) => void change(event.currentTarget.checked)} />
        {t("mem.learns")}
      </label>
      {!now.enabled && <span class="quiet">{t("mem.off")}</span>}
    </div>
  );
}

function Memories({ shared }: { shared: boolean }) {
  const [question, scope, kind] = [asked("q"), asked("scope"), chosen("kind", KINDS)];
  const of = { shared, ...filled({ scope }) };
  const page = async (after: After) => {
    if (!question) return await data(api.GET("/v1/memories", { params: { query: { ...of, ...filled({ kind }), ...paged(after) } } }));
    const found = await data(api.GET("/v1/memories/search", { params: { query: { ...of, query: question, top_k: 50 } } }));
    return { ...found, data: found.data.filter((each) => !kind || each.kind === kind) };
  };
  const listing = useListing<Row>(page, [question, kind, scope, shared]);
  const score: Column<Row> = { head: t("do.search"), cell: (row) => row.score?.toFixed(2), width: "5rem", numeric: true };
  // Nothing is remembered of whom a server does not know, which is no fault: `Learning` says so.
  const unknown = listing.error instanceof ApiError && listing.error.status === 403 && may("memory:read");
  const forgetAll = async () => {
    const { versions } = await data(api.DELETE("/v1/memories", { params: { query: { shared } } }));
    tell(t("mem.forgotten", { n: versions }));
    listing.reload();
  };
  const download = async () => save(shared ? "shared-memories.jsonl" : "memories.jsonl", await blob(`/v1/memories/export?shared=${shared}`));
  const empty = <Empty title={t("mem.none")}>{t("mem.noneHow")}</Empty>;
  return (
    <div class="page">
      <PageHead title={t("nav.memory")}>
        {!unknown && (
          <div class="actions">
            {mayWrite(shared) && <MemoryButton shared={shared} onDone={listing.reload} />}
            <Button onClick={download}>{t("mem.export")}</Button>
            {mayForget(shared) && <ConfirmButton title={t("mem.forgetAll")} text={t("mem.forgetAllText")} name={t("do.forget")} onYes={forgetAll} />}
          </div>
        )}
      </PageHead>
      <Tabs
        label={t("nav.memory")}
        tabs={[
          { href: to(["memory"]), text: t("mem.mine"), current: !shared },
          { href: to(["memory"], { shared: "1" }), text: t("mem.shared"), current: shared },
        ]}
      />
      {!shared && <Learning />}
      {unknown ? (
        empty
      ) : (
        <>
          <SearchForm>
            <Field label={t("do.search")} name="q" type="search" value={question} />
            <SearchSelect label={t("is.kind")} name="kind" options={kinds()} any={t("mem.allKinds")} />
            <SearchField label={t("mem.scope")} name="scope" />
          </SearchForm>
          <Table label={t("nav.memory")} columns={[...columns(), ...(question ? [score] : [])]} listing={listing} href={(row) => to(["memory", row.id], { shared: shared ? "1" : null })} empty={empty} />
        </>
      )}
    </div>
  );
}

function Sources({ memory }: { memory: MemoryEntry }) {
  return (
    <>
      {memory.sources.map((source, n) => (
        <blockquote key={n} class="source text">
          <bdi>{source.quote}</bdi>
          <footer class="quiet">
            {source.said_by && `${t("mem.saidBy", { user: source.said_by })} · `}
            {may("threads:read") && !source.said_by ? <a href={to(["runs", source.run_id])}>{t("is.run")}</a> : source.run_id}
          </footer>
        </blockquote>
      ))}
    </>
  );
}

function Version({ memory }: { memory: MemoryEntry }) {
  return (
    <li class={memory.expired_at ? "card quiet" : "card"}>
      <p class="text">{memory.text}</p>
      <p class="quiet">
        {memory.expired_at ? (memory.ended_by ? t(`mem.ended.${memory.ended_by}`) : null) : <span class="badge">{t("is.current")}</span>} {t(`mem.${memory.kind}`)} · {t("mem.importance")} {memory.importance.toFixed(2)} · {t("mem.since")} <Time at={memory.valid_from} />
        {memory.valid_to && (
          <>
            {" · "}
            {t("mem.until")} <Time at={memory.valid_to} />
          </>
        )}
      </p>
    </li>
  );
}

function Shown({ versions, shared, reload }: { versions: readonly MemoryEntry[]; shared: boolean; reload: () => void }) {
  const memory = versions[0];
  if (memory === undefined) return null;
  const list = to(["memory"], { shared: shared ? "1" : null });
  const forget = async () => {
    await data(api.DELETE("/v1/memories/{memory_id}", { params: { path: { memory_id: memory.id }, query: { shared } } }));
    go(list);
  };
  return (
    <div class="page">
      <PageHead title={t("mem.text")}>
        <div class="actions">
          <a href={list}>{t(shared ? "mem.shared" : "mem.mine")}</a>
          {mayWrite(shared) && <MemoryButton memory={memory} shared={shared} onDone={reload} />}
          {mayForget(shared) && <ConfirmButton kind="danger" title={t("do.forget")} text={t("mem.forgetText")} onYes={forget} />}
        </div>
      </PageHead>
      <p class="text memory">
        <bdi>{memory.text}</bdi>
      </p>
      <Facts
        of={[
          [t("is.kind"), t(`mem.${memory.kind}`)],
          [t("mem.scope"), memory.scope || t("mem.forAll")],
          [t("mem.importance"), memory.importance.toFixed(2)],
          [t("mem.since"), <Time at={memory.valid_from} />],
          [t("mem.uses"), [count(memory.uses), " ", <Time at={memory.used_at} />]],
          [t("mem.origin"), [t(`mem.origin.${memory.origin}`), <Sources memory={memory} />]],
        ]}
      />
      <h2>{t("mem.history")}</h2>
      <ol class="versions">
        {versions.map((each) => (
          <Version key={each.version_id} memory={each} />
        ))}
      </ol>
    </div>
  );
}

function OneMemory({ id, shared }: { id: string; shared: boolean }) {
  const history = useLoaded(async () => (await data(api.GET("/v1/memories/{memory_id}/history", { params: { path: { memory_id: id }, query: { shared } } }))).data, [id, shared]);
  return <Show of={history}>{(versions) => <Shown versions={versions} shared={shared} reload={history.reload} />}</Show>;
}

/** `/memory`, `/memory/MEMORY`; with `?shared=1` of what all users share. */
export default function Memory() {
  const id = path.value[1];
  const shared = query.value.get("shared") === "1";
  return id === undefined ? <Memories key={String(shared)} shared={shared} /> : <OneMemory key={id} id={id} shared={shared} />;
}
