/** The list of stores. */
import { api, data, type Listed } from "../../api";
import { go, to } from "../../route";
import { may } from "../../session";
import { Area, bytes, count, DialogButton, Empty, Field, Form, numberOf, PageHead, paged, Table, Time, useListing, type Column, type Given } from "../../ui";
import { t } from "../../words";

export type StoreEntry = Listed<"/v1/vector_stores">;

export const nameOf = (store: StoreEntry) => store.name || t("kn.unnamed");

export function StoreStatus({ store }: { store: StoreEntry }) {
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

/** What of a store is filled in, when it is made and later. */
export function StoreForm({ store, onDone }: { store?: StoreEntry; onDone: (store: StoreEntry) => void }) {
  const submit = async ({ name = "", description = "", days }: Given) => {
    const body = { name, description, expires_after: days ? ({ anchor: "last_active_at", days: numberOf(days) } as const) : null };
    const params = { path: { vector_store_id: store?.id ?? "" } };
    onDone(await data(store ? api.POST("/v1/vector_stores/{vector_store_id}", { params, body }) : api.POST("/v1/vector_stores", { body })));
  };
  return (
    <Form onSubmit={submit}>
      <Field label={t("is.name")} name="name" value={store?.name ?? ""} required autofocus />
      <Area label={t("kn.description")} name="description" value={store?.description ?? ""} rows={2} />
      <Field label={t("kn.days")} name="days" type="number" value={String(store?.expires_after?.days ?? "")} />
    </Form>
  );
}

export function Stores() {
  const listing = useListing<StoreEntry>((after) => data(api.GET("/v1/vector_stores", { params: { query: paged(after) } })), [], 5);
  return (
    <div class="page">
      <PageHead title={t("nav.knowledge")}>
        {may("knowledge:write") && (
          <DialogButton kind="primary" title={t("kn.new")}>
            {() => <StoreForm onDone={(made) => go(to(["knowledge", made.id]))} />}
          </DialogButton>
        )}
      </PageHead>
      <Table label={t("kn.stores")} columns={columns()} listing={listing} href={(row) => to(["knowledge", row.id])} empty={<Empty title={t("kn.none")}>{t("kn.noneHow")}</Empty>} />
    </div>
  );
}
