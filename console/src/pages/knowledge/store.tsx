/** One store: its files as they are read, or a search in it. */
import { api, data } from "../../api/client";
import { go, to } from "../../route";
import { may } from "../../session";
import { Tabs } from "../../ui/controls";
import { ConfirmButton, DialogButton } from "../../ui/form";
import { useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Loading, Problem } from "../../ui/state";
import { bytes, count, Time } from "../../ui/values";
import { t } from "../../words";
import { Files } from "./files";
import { Search } from "./search";
import { nameOf, StoreForm, StoreStatus } from "./stores";

export function Store({ id, searching }: { id: string; searching: boolean }) {
  const params = { path: { vector_store_id: id } };
  const store = useLoaded(() => data(api.GET("/v1/vector_stores/{vector_store_id}", { params })), [id], 3);
  const shown = store.value;
  if (shown === null) return store.error === null ? <Loading /> : <Problem error={store.error} retry={store.reload} />;
  const mine = may("knowledge:write") && !shown.shared;
  const remove = async () => {
    await data(api.DELETE("/v1/vector_stores/{vector_store_id}", { params }));
    go("knowledge");
  };
  return (
    <div class="page">
      <PageHead title={nameOf(shown)}>
        {mine && (
          <div class="actions">
            <DialogButton title={t("kn.change")} text={t("do.edit")}>
              {(close) => <StoreForm store={shown} onDone={(made) => (store.set(made), close())} />}
            </DialogButton>
            <ConfirmButton title={t("kn.delete")} text={t("kn.deleteText", { name: nameOf(shown) })} onYes={remove}>
              {t("do.delete")}
            </ConfirmButton>
          </div>
        )}
      </PageHead>
      {store.error !== null && <Problem error={store.error} retry={store.reload} />}
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
          { href: to(["knowledge", id]), text: `${t("kn.files")} (${count(shown.file_counts.total)})`, current: !searching },
          { href: to(["knowledge", id, "search"]), text: t("do.search"), current: searching },
        ]}
      />
      {searching ? <Search store={id} /> : <Files store={id} mine={mine} onChange={store.reload} />}
    </div>
  );
}
