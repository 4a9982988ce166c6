/** One store: its files as they are read, or a search in it. */
import { api, data } from "../../api";
import { go, to } from "../../route";
import { may } from "../../session";
import { bytes, ConfirmButton, count, DialogButton, PageHead, Show, Tabs, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { Files } from "./files";
import { Search } from "./search";
import { nameOf, StoreForm, StoreStatus, type StoreEntry } from "./stores";

export function Store({ id, searching }: { id: string; searching: boolean }) {
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
            <DialogButton title={t("kn.change")} text={t("do.edit")}>
              {(close) => <StoreForm store={shown} onDone={(made) => (set(made), close())} />}
            </DialogButton>
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
