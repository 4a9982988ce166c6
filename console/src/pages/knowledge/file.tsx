/** The text that was read of a file, with the passage that was found in it. */
import { useEffect, useRef } from "preact/hooks";
import { api, data } from "../../api";
import { query, to } from "../../route";
import { may } from "../../session";
import { Area, bytes, count, DialogButton, Empty, Form, PageHead, Show, Time, useLoaded, type Given } from "../../ui";
import { t } from "../../words";
import { attributesOf, FileStatus, type StoreFile } from "./files";
import { valueOf } from "./search";

const written = (value: unknown) => (typeof value === "string" && (valueOf(value.trim()) !== value || value.includes("\n")) ? JSON.stringify(value) : String(value));

/** A line as it is filled in, as a name and its value. */
function attributeOf(line: string) {
  const [name = "", ...value] = line.split("=");
  if (!value.length) throw new Error(`${line.trim()}: ${t("kn.attributesHow")}`);
  return [name.trim(), valueOf(value.join("=").trim())] as const;
}

function AttributesForm({ file, onDone }: { file: StoreFile; onDone: (file: StoreFile) => void }) {
  const first = Object.entries(file.attributes).map(([name, value]) => `${name} = ${written(value)}`);
  const submit = async ({ text = "" }: Given) => {
    const attributes = Object.fromEntries(text.split("\n").filter((line) => line.trim()).map(attributeOf));
    const params = { path: { vector_store_id: file.vector_store_id, file_id: file.id } };
    onDone(await data(api.POST("/v1/vector_stores/{vector_store_id}/files/{file_id}", { params, body: { attributes } as never })));
  };
  return (
    <Form onSubmit={submit}>
      <Area label={t("kn.attributesHow")} name="text" value={first.join("\n")} rows={6} />
    </Form>
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
          {may("knowledge:write") && <DialogButton title={t("kn.changeAttributes")}>{(close) => <AttributesForm file={file} onDone={(made) => (onChanged(made), close())} />}</DialogButton>}
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
