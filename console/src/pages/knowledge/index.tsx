/** The list of stores, and one of them: its files as they are read, or a search in it. */
import { api, data, type Listed } from "../../api";
import { go, path, to } from "../../route";
import { may } from "../../session";
import { Area, bytes, ConfirmButton, count, Empty, Field, FormButton, numberOf, PageHead, paged, Show, Table, Tabs, Time, useListing, useLoaded, type Column, type Given } from "../../ui";
import { t } from "../../words";
import { Files, FileText } from "./files";
import { Search } from "./search";
import "./knowledge.css";

type StoreEntry = Listed<"/v1/vector_stores">;

const nameOf = (store: StoreEntry) => store.name || t("kn.unnamed");

function StoreStatus({ store }: { store: StoreEntry }) {
  const { completed, failed, total } = store.file_counts;
  return (
    <span class="actions">
      <span class={`status ${{ in_progress: "running", completed: "completed", expired: "warn" }[store.status]}`}>{t(`is.${store.status}`)}</span>
      {store.status === "in_progress" && <span class="quiet">{t("kn.progress", { done: completed + failed, total })}</span>}
      {failed > 0 && <span class="status bad">{t("kn.failures", { n: failed })}</span>}
    </span>
  );
}

const columns = (): readonly Column<StoreEntry>[] => [
  { head: t("is.name"), cell: (row) => <bdi>{nameOf(row)}</bdi>, width: "2fr" },
  { head: t("is.status"), cell: (row) => <StoreStatus store={row} />, width: "2fr" },
  { head: t("is.files"), cell: (row) => count(row.file_counts.total), numeric: true, wide: true },
  { head: t("kn.chunks"), cell: (row) => count(row.chunks), numeric: true, wide: true },
  { head: t("kn.size"), cell: (row) => bytes(row.usage_bytes), numeric: true, wide: true },
  { head: t("kn.used"), cell: (row) => <Time at={row.last_active_at} />, wide: true },
];

/** The button and form to make a store, or to change one. */
function StoreButton({ store, onDone }: { store?: StoreEntry; onDone: (store: StoreEntry) => void }) {
  const submit = async ({ name = "", description = "", days }: Given) => {
    const body = { name, description, expires_after: days ? ({ anchor: "last_active_at", days: numberOf(days) } as const) : null };
    const params = { path: { vector_store_id: store?.id ?? "" } };
    onDone(await data(store ? api.POST("/v1/vector_stores/{vector_store_id}", { params, body }) : api.POST("/v1/vector_stores", { body })));
  };
  return (
    <FormButton {...(store ? { title: t("kn.change"), text: t("do.edit") } : { title: t("kn.new"), kind: "primary" })} onSubmit={submit}>
      <Field label={t("is.name")} name="name" value={store?.name ?? ""} required autofocus />
      <Area label={t("agents.description")} name="description" value={store?.description ?? ""} rows={2} />
      <Field label={t("kn.days")} name="days" type="number" value={String(store?.expires_after?.days ?? "")} />
    </FormButton>
  );
}

function Stores() {
  const listing = useListing<StoreEntry>((after) => data(api.GET("/v1/vector_stores", { params: { query: paged(after) } })), [], 5);
  return (
    <div class="page">
      <PageHead title={t("nav.knowledge")}>
        {may("knowledge:write") && <StoreButton onDone={(made) => go(to(["knowledge", made.id]))} />}
      </PageHead>
      <Table label={t("kn.stores")} columns={columns()} listing={listing} href={(row) => to(["knowledge", row.id])} empty={<Empty title={t("kn.none")}>{t("kn.noneHow")}</Empty>} />
    </div>
  );
}

function Store({ id, searching }: { id: string; searching: boolean }) {
  const store = useLoaded(() => data(api.GET("/v1/vector_stores/{vector_store_id}", { params: { path: { vector_store_id: id } } })), [id], 3);
  return <Show of={store}>{(shown) => <Shown store={shown} searching={searching} reload={store.reload} set={store.set} />}</Show>;
}

function Shown({ store: shown, searching, reload, set }: { store: StoreEntry; searching: boolean; reload: () => void; set: (store: StoreEntry) => void }) {
  const { id } = shown;
  const mine = may("knowledge:write") && !shown.shared;
  const remove = async () => {
    await data(api.DELETE("/v1/vector_stores/{vector_store_id}", { params: { path: { vector_store_id: id } } }));
    go("knowledge");
  };
  return (
    <div class="page">
      <PageHead title={nameOf(shown)}>
        {mine && (
          <div class="actions">
            <StoreButton store={shown} onDone={set} />
            <ConfirmButton title={t("kn.delete")} on={t("do.delete")} text={t("kn.deleteText", { name: nameOf(shown) })} onYes={remove} />
          </div>
        )}
      </PageHead>
      {shown.description && <p class="text quiet">{shown.description}</p>}
      <div class="actions">
        <StoreStatus store={shown} />
        {shown.shared && <span class="badge">{t("kn.shared")}</span>}
        <span class="quiet">
          {t("kn.chunks")}: {count(shown.chunks)} · {bytes(shown.usage_bytes)} · {shown.embedding_model ? t("kn.model", { model: shown.embedding_model }) : t("kn.keywords")}
          {shown.embedding_anew && ` · ${t("kn.anew", { model: shown.embedding_anew })}`} · {t("kn.expires")}: {shown.expires_at === null ? t("kn.never") : <Time at={shown.expires_at} />}
        </span>
      </div>
      <Tabs
        label={nameOf(shown)}
        tabs={[
          { href: to(["knowledge", id]), text: `${t("is.files")} (${count(shown.file_counts.total)})`, current: !searching },
          { href: to(["knowledge", id, "search"]), text: t("do.search"), current: searching },
        ]}
      />
      {searching ? <Search store={id} /> : <Files store={id} mine={mine} onChange={reload} />}
    </div>
  );
}

/** `/knowledge`, `/knowledge/STORE`, `…/STORE/search`, `…/STORE/files/FILE`. */
export default function Knowledge() {
  const [, store, part, file] = path.value;
  if (store === undefined) return <Stores />;
  if (part === "files" && file !== undefined) return <FileText key={file} store={store} file={file} />;
  return <Store key={store} id={store} searching={part === "search"} />;
}
