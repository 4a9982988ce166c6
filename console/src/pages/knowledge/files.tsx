/** The files of a store, as they are uploaded and read; and the text that was read of one, with the passage that was found in it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { api, data, filled, upload, type Listed } from "../../api";
import { chosen, query, to } from "../../route";
import { may } from "../../session";
import { acts, Area, Button, bytes, ConfirmButton, count, eachOf, Empty, FormButton, jsonOf, messageOf, optionsOf, PageHead, paged, SearchSelect, Show, Table, tell, tellError, Time, useListing, useLoaded, type After, type Column, type Given } from "../../ui";
import { t } from "../../words";

type StoreFile = Listed<"/v1/vector_stores/{vector_store_id}/files">;
const STATUSES = ["in_progress", "completed", "failed", "cancelled"] as const;
/** How many files are uploaded at once. */
const AT_ONCE = 3;

export const attributesOf = (file: { attributes: StoreFile["attributes"] }) =>
  Object.entries(file.attributes)
    .map(([name, value]) => `${name} = ${value}`)
    .join(", ");

function FileStatus({ file }: { file: StoreFile }) {
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
    data(api.GET("/v1/vector_stores/{vector_store_id}/files", { params: { path: { vector_store_id: store }, query: { ...paged(after), ...filled({ filter: status }) } } }));
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

/** A value as it was typed: a number, true or false, or a text, which quotes make of the others, too. */
export function valueOf(text: string): string | number | boolean {
  const value = jsonOf(text);
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? value : text;
}

const written = (value: unknown) => (typeof value === "string" && (valueOf(value.trim()) !== value || value.includes("\n")) ? JSON.stringify(value) : String(value));

/** A line as it is filled in, as a name and its value. */
function attributeOf(line: string) {
  const [name = "", ...value] = line.split("=");
  if (!value.length) throw new Error(`${line.trim()}: ${t("kn.attributesHow")}`);
  return [name.trim(), valueOf(value.join("=").trim())] as const;
}

function AttributesButton({ file, onDone }: { file: StoreFile; onDone: (file: StoreFile) => void }) {
  const first = Object.entries(file.attributes).map(([name, value]) => `${name} = ${written(value)}`);
  const submit = async ({ text = "" }: Given) => {
    const attributes = Object.fromEntries(text.split("\n").filter((line) => line.trim()).map(attributeOf));
    const params = { path: { vector_store_id: file.vector_store_id, file_id: file.id } };
    onDone(await data(api.POST("/v1/vector_stores/{vector_store_id}/files/{file_id}", { params, body: { attributes } as never })));
  };
  return (
    <FormButton title={t("kn.changeAttributes")} onSubmit={submit}>
      <Area label={t("kn.attributesHow")} name="text" value={first.join("\n")} rows={6} />
    </FormButton>
  );
}

function Parts({ parts, place }: { parts: readonly { text: string; place?: number }[]; place: string | null }) {
  const mark = useRef<HTMLLIElement>(null);
  useEffect(() => mark.current?.scrollIntoView({ block: "center" }), [place]);
  if (parts.length === 0) return <Empty title={t("kn.noText")} />;
  return (
    <ol class="parts">
      {parts.map((part, n) => {
        const found = String(part.place) === place;
        return (
          <li key={n} ref={found ? mark : null} class={found ? "part found" : "part"}>
            <span class="quiet">{found ? t("kn.passage") : t("kn.part", { n: n + 1 })}</span>
            <div class="text">{part.text}</div>
          </li>
        );
      })}
    </ol>
  );
}

function Shown({ file, onChanged }: { file: StoreFile; onChanged: (file: StoreFile) => void }) {
  const params = { path: { vector_store_id: file.vector_store_id, file_id: file.id } };
  const content = useLoaded(() => data(api.GET("/v1/vector_stores/{vector_store_id}/files/{file_id}/content", { params })), [file.id, file.status]);
  const attributes = attributesOf(file);
  return (
    <div class="page">
      <PageHead title={file.filename}>
        <div class="actions">
          <a href={to(["knowledge", file.vector_store_id])}>{t("kn.store")}</a>
          {may("knowledge:write") && <AttributesButton file={file} onDone={onChanged} />}
        </div>
      </PageHead>
      <p class="actions">
        <FileStatus file={file} />
        <span class="quiet text">
          {t("kn.chunks")}: {count(file.chunks.total)} · {bytes(file.usage_bytes)} · <Time at={file.created_at} /> {attributes && `· ${attributes}`}
        </span>
      </p>
      {file.notes.length > 0 && (
        <p class="text">
          <strong>{t("kn.notes")}:</strong> {file.notes.join(" · ")}
        </p>
      )}
      <Show of={content}>{({ data: parts }) => <Parts parts={parts} place={query.value.get("place")} />}</Show>
    </div>
  );
}

export function FileText({ store, file }: { store: string; file: string }) {
  const params = { path: { vector_store_id: store, file_id: file } };
  const info = useLoaded(() => data(api.GET("/v1/vector_stores/{vector_store_id}/files/{file_id}", { params })), [store, file], 3);
  return <Show of={info}>{(shown) => <Shown file={shown} onChanged={info.set} />}</Show>;
}
