/** The files of a store, as they are uploaded and read. */
import { useRef, useState } from "preact/hooks";
import { api, data, upload, type Listed } from "../../api";
import { chosen, to } from "../../route";
import { may } from "../../session";
import { acts, Button, bytes, ConfirmButton, eachOf, messageOf, optionsOf, paged, SearchSelect, Table, tell, tellError, Time, useListing, type After, type Column } from "../../ui";
import { t } from "../../words";

export type StoreFile = Listed<"/v1/vector_stores/{vector_store_id}/files">;
const STATUSES = ["in_progress", "completed", "failed", "cancelled"] as const;
/** How many files are uploaded at once. */
const AT_ONCE = 3;

export const attributesOf = (file: { attributes: StoreFile["attributes"] }) =>
  Object.entries(file.attributes)
    .map(([name, value]) => `${name} = ${value}`)
    .join(", ");

export function FileStatus({ file }: { file: StoreFile }) {
  const { done, total } = file.chunks;
  const waits = file.status === "in_progress" && total === 0;
  const kind = { in_progress: waits ? "" : "running", completed: "completed", failed: "bad", cancelled: "" }[file.status];
  return (
    <>
      <span class={`status ${kind}`}>{waits ? t("status.created") : t(`is.${file.status}`)}</span>{" "}
      {file.status === "in_progress" && !waits && <span class="quiet">{t("kn.chunksDone", { done, total })}</span>}
      {file.last_error && <span title={file.last_error.message}>{file.last_error.message}</span>}
    </>
  );
}

/** Upload files and attach them. One that is refused keeps none of the others back. */
function useUpload(store: string, onDone: () => void) {
  const [state, setState] = useState<{ done: number; total: number } | null>(null);
  const add = async (files: readonly File[]) => {
    const ids: string[] = [];
    // While some are on their way, others may be dropped.
    setState((old) => ({ done: old?.done ?? 0, total: (old?.total ?? 0) + files.length }));
    const put = async (file: File) => {
      try {
        ids.push(await upload(file, "assistants"));
      } catch (error) {
        tell(t("kn.notUploaded", { name: file.name, why: messageOf(error) }), "problem");
      }
      setState((old) => old && { ...old, done: old.done + 1 });
    };
    try {
      await eachOf(files, AT_ONCE, put);
      const params = { path: { vector_store_id: store } };
      if (ids.length) await data(api.POST("/v1/vector_stores/{vector_store_id}/file_batches", { params, body: { file_ids: ids } }));
    } catch (error) {
      tellError(error);
    } finally {
      setState((old) => (old && old.done < old.total ? old : null));
      onDone();
    }
  };
  return { state, add };
}

export function Files({ store, mine, onChange }: { store: string; mine: boolean; onChange: () => void }) {
  const picker = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const status = chosen("status", STATUSES);
  const page = (after: After) =>
    data(api.GET("/v1/vector_stores/{vector_store_id}/files", { params: { path: { vector_store_id: store }, query: { ...paged(after), ...(status ? { filter: status } : {}) } } }));
  const listing = useListing<StoreFile>(page, [store, status], 3);
  const changed = () => (listing.reload(), onChange());
  const { state, add } = useUpload(store, changed);
  const mayAdd = mine && may("files:write");
  const remove = async (file: StoreFile) => {
    await data(api.DELETE("/v1/vector_stores/{vector_store_id}/files/{file_id}", { params: { path: { vector_store_id: store, file_id: file.id } } }));
    changed();
  };
  const columns: Column<StoreFile>[] = [
    { head: t("is.name"), cell: (row) => <bdi>{row.filename}</bdi>, width: "2fr" },
    { head: t("is.status"), cell: (row) => <FileStatus file={row} />, width: "2fr" },
    { head: t("kn.attributes"), cell: (row) => <bdi title={attributesOf(row)}>{attributesOf(row)}</bdi>, wide: true },
    { head: t("kn.size"), cell: (row) => bytes(row.usage_bytes), width: "6rem", numeric: true, wide: true },
    { head: t("kn.added"), cell: (row) => <Time at={row.created_at} />, width: "8rem", wide: true },
    ...(mine ? [acts<StoreFile>("3rem", (row) => <ConfirmButton of={row.filename} title={t("kn.remove")} on="×" text={t("kn.removeText", { name: row.filename })} onYes={() => remove(row)} />)] : []),
  ];
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const files = [...(event.dataTransfer?.files ?? [])];
    if (mayAdd && files.length) void add(files);
  };
  return (
    <section class={over ? "drop over" : "drop"} aria-label={t("is.files")} onDragOver={(event) => (event.preventDefault(), setOver(mayAdd))} onDragLeave={() => setOver(false)} onDrop={drop}>
      <div class="filters">
        <SearchSelect label={t("is.status")} name="status" options={optionsOf(STATUSES, (each) => t(`is.${each}`))} any={t("is.all")} />
        {mayAdd && (
          <>
            <input ref={picker} type="file" multiple hidden aria-label={t("do.addFiles")} onChange={(event) => (void add([...(event.currentTarget.files ?? [])]), (event.currentTarget.value = ""))} />
            <Button kind="primary" disabled={state !== null} onClick={() => picker.current?.click()}>
              {t("do.addFiles")}
            </Button>
            <span class="quiet" role="status">
              {state ? t("kn.uploading", state) : t("kn.drop")}
            </span>
          </>
        )}
      </div>
      <Table label={t("is.files")} columns={columns} listing={listing} href={(row) => to(["knowledge", store, "files", row.id])} empty={t("kn.noFiles")} />
    </section>
  );
}
