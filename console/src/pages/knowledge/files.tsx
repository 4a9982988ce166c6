/** The files of a store, as they are uploaded and read. */
import { useRef, useState } from "preact/hooks";
import { api, data, root, send } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { query, search, to } from "../../route";
import { may } from "../../session";
import { Button, Select } from "../../ui/controls";
import { ConfirmButton } from "../../ui/form";
import { paged, useListing } from "../../ui/load";
import { Empty } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { tell } from "../../ui/toast";
import { bytes, Time } from "../../ui/values";
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
      <span class={`status ${kind}`}>{waits ? t("kn.queued") : t(`kn.${file.status}`)}</span>{" "}
      {file.status === "in_progress" && !waits && <span class="quiet">{t("kn.chunksDone", { done, total })}</span>}
      {file.last_error && <span title={file.last_error.message}>{file.last_error.message}</span>}
    </>
  );
}

async function upload(file: File): Promise<string> {
  const body = new FormData();
  body.set("purpose", "assistants");
  body.set("file", file);
  const response = await send(new Request(`${root}/v1/files`, { method: "POST", body }));
  return ((await response.json()) as { id: string }).id;
}

/** Upload files and attach them. One that is refused keeps none of the others back. */
function useUpload(store: string, onDone: () => void) {
  const [state, setState] = useState<{ done: number; total: number } | null>(null);
  const add = async (files: readonly File[]) => {
    const waiting = [...files];
    const ids: string[] = [];
    setState({ done: 0, total: files.length });
    const work = async () => {
      for (let file = waiting.shift(); file; file = waiting.shift()) {
        try {
          ids.push(await upload(file));
        } catch (error) {
          tell(t("kn.notUploaded", { name: file.name, why: (error as Error).message }), "problem");
        }
        setState((old) => old && { ...old, done: old.done + 1 });
      }
    };
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, work));
      const params = { path: { vector_store_id: store } };
      if (ids.length) await data(api.POST("/v1/vector_stores/{vector_store_id}/file_batches", { params, body: { file_ids: ids } }));
    } catch (error) {
      tell((error as Error).message, "problem");
    } finally {
      setState(null);
      onDone();
    }
  };
  return { state, add };
}

export function Files({ store, mine, onChange }: { store: string; mine: boolean; onChange: () => void }) {
  const picker = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const status = STATUSES.find((each) => each === query.value.get("status"));
  const page = (after: string | number | null) =>
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
    { name: "name", head: t("kn.name"), cell: (row) => <bdi>{row.filename}</bdi>, width: "2fr" },
    { name: "status", head: t("kn.status"), cell: (row) => <FileStatus file={row} />, width: "2fr" },
    { name: "attributes", head: t("kn.attributes"), cell: (row) => <bdi title={attributesOf(row)}>{attributesOf(row)}</bdi>, wide: true },
    { name: "size", head: t("kn.size"), cell: (row) => bytes(row.usage_bytes), width: "6rem", numeric: true, wide: true },
    { name: "added", head: t("kn.added"), cell: (row) => <Time at={row.created_at} />, width: "8rem", wide: true },
  ];
  if (mine)
    columns.push({
      name: "do",
      head: "",
      width: "3rem",
      cell: (row) => (
        <ConfirmButton kind="ghost" label={`${t("kn.remove")}: ${row.filename}`} title={t("kn.remove")} text={t("kn.removeText", { name: row.filename })} onYes={() => remove(row)}>
          ×
        </ConfirmButton>
      ),
    });
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const files = [...(event.dataTransfer?.files ?? [])];
    if (mayAdd && files.length) void add(files);
  };
  return (
    <section class={over ? "drop over" : "drop"} aria-label={t("kn.files")} onDragOver={(event) => (event.preventDefault(), setOver(mayAdd))} onDragLeave={() => setOver(false)} onDrop={drop}>
      <div class="filters">
        <Select label={t("kn.status")} value={status ?? ""} options={[["", t("kn.all")], ...STATUSES.map((each) => [each, t(`kn.${each}`)] as const)]} onValue={(value) => search({ status: value || null })} />
        {mayAdd && (
          <>
            <input ref={picker} type="file" multiple hidden aria-label={t("kn.upload")} onChange={(event) => (void add([...(event.currentTarget.files ?? [])]), (event.currentTarget.value = ""))} />
            <Button kind="primary" disabled={state !== null} onClick={() => picker.current?.click()}>
              {t("kn.upload")}
            </Button>
            <span class="quiet" role="status">
              {state ? t("kn.uploading", state) : t("kn.drop")}
            </span>
          </>
        )}
      </div>
      <Table label={t("kn.files")} columns={columns} listing={listing} href={(row) => to(["knowledge", store, "files", row.id])} empty={<Empty title={t("kn.noFiles")} />} />
    </section>
  );
}
