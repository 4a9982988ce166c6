/** What is remembered: a list, a search in it, and whether anything is learnt. */
import { api, ApiError, blob, data, type Listed } from "../../api";
import { asked, chosen, to } from "../../route";
import { may } from "../../session";
import { Area, Button, ConfirmButton, DialogButton, Empty, Field, Form, numberOf, optionsOf, PageHead, paged, Problem, save, SearchField, SearchForm, SearchSelect, Select, Table, Tabs, tell, tellError, Time, useListing, useLoaded, type After, type Column, type Given } from "../../ui";
import { t } from "../../words";

export type MemoryEntry = Listed<"/v1/memories">;
type Row = MemoryEntry & { score?: number };
const KINDS = ["fact", "preference", "episode"] as const;
const kinds = () => optionsOf(KINDS, (each) => t(`mem.${each}`));

/** Whether what is remembered may be changed: of all users' common memory that takes one scope more. */
export const mayWrite = (shared: boolean) => may("memory:write") && (!shared || may("knowledge:write"));
export const mayForget = (shared: boolean) => may("memory:delete") && (!shared || may("knowledge:write"));

const columns = (): Column<Row>[] => [
  { head: t("mem.text"), cell: (row) => <bdi title={row.text}>{row.text}</bdi>, width: "4fr" },
  { head: t("is.kind"), cell: (row) => <span class="badge">{t(`mem.${row.kind}`)}</span>, width: "7rem" },
  { head: t("mem.scope"), cell: (row) => row.scope || <span class="quiet">{t("mem.forAll")}</span>, width: "8rem", wide: true },
  { head: t("mem.importance"), cell: (row) => row.importance.toFixed(2), width: "7rem", numeric: true, wide: true },
  { head: t("mem.origin"), cell: (row) => t(`mem.origin.${row.origin}`), width: "9rem", wide: true },
  { head: t("mem.since"), cell: (row) => <Time at={row.valid_from} />, width: "8rem", wide: true },
];

/** What of a memory is filled in, when it is made and later. */
export function MemoryForm({ memory, shared, onDone }: { memory?: MemoryEntry; shared: boolean; onDone: () => void }) {
  const submit = async ({ text = "", kind, importance = "", scope = "" }: Given) => {
    const said = { text, kind: kind as MemoryEntry["kind"], importance: numberOf(importance) };
    const params = { path: { memory_id: memory?.id ?? "" }, query: { shared } };
    await data(memory ? api.PATCH("/v1/memories/{memory_id}", { params, body: said }) : api.POST("/v1/memories", { body: { ...said, scope, shared } }));
    onDone();
  };
  return (
    <Form onSubmit={submit}>
      <Area label={t("mem.text")} name="text" value={memory?.text ?? ""} required />
      <Select label={t("is.kind")} name="kind" value={memory?.kind ?? "fact"} options={kinds()} />
      <Field label={t("mem.importanceHow")} name="importance" value={String(memory?.importance ?? 0.8)} required />
      {!memory && <Field label={t("mem.scope")} name="scope" placeholder={t("mem.forAll")} />}
    </Form>
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

export function Memories({ shared }: { shared: boolean }) {
  const [question, scope, kind] = [asked("q"), asked("scope"), chosen("kind", KINDS)];
  const of = { shared, ...(scope ? { scope } : {}) };
  const page = async (after: After) => {
    if (!question) return await data(api.GET("/v1/memories", { params: { query: { ...of, ...(kind ? { kind } : {}), ...paged(after) } } }));
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
            {mayWrite(shared) && (
              <DialogButton kind="primary" title={t("mem.new")}>
                {(close) => <MemoryForm shared={shared} onDone={() => (close(), listing.reload())} />}
              </DialogButton>
            )}
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
