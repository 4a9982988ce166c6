/** The text that was read of a file, with the passage that was found in it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { api, data } from "../../api/client";
import { query, to } from "../../route";
import { may } from "../../session";
import { Area } from "../../ui/controls";
import { DialogButton, Form } from "../../ui/form";
import { useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Empty, Loading, Problem } from "../../ui/state";
import { bytes, count, Time } from "../../ui/values";
import { t } from "../../words";
import { attributesOf, FileStatus, type StoreFile } from "./files";
import { valueOf } from "./search";

function AttributesForm({ file, onDone }: { file: StoreFile; onDone: (file: StoreFile) => void }) {
  const [text, setText] = useState(Object.entries(file.attributes).map(([name, value]) => `${name} = ${typeof value === "string" && valueOf(value) !== value ? JSON.stringify(value) : value}`).join("\n"));
  const submit = async () => {
    const lines = text.split("\n").filter((line) => line.trim());
    const attributes = Object.fromEntries(lines.map((line) => [line.split("=")[0]?.trim() ?? "", valueOf(line.slice(line.indexOf("=") + 1).trim())]));
    const params = { path: { vector_store_id: file.vector_store_id, file_id: file.id } };
    onDone(await data(api.POST("/v1/vector_stores/{vector_store_id}/files/{file_id}", { params, body: { attributes } as never })));
  };
  return (
    <Form onSubmit={submit}>
      <Area label={t("kn.attributesHow")} value={text} onValue={setText} rows={6} />
    </Form>
  );
}

function Parts({ parts, place }: { parts: readonly { text: string; place?: number }[]; place: string | null }) {
  const mark = useRef<HTMLLIElement>(null);
  useEffect(() => mark.current?.scrollIntoView({ block: "center" }), [place]);
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

export function FileText({ store, file }: { store: string; file: string }) {
  const params = { path: { vector_store_id: store, file_id: file } };
  const info = useLoaded(() => data(api.GET("/v1/vector_stores/{vector_store_id}/files/{file_id}", { params })), [store, file], 3);
  const state = info.value?.status;
  const content = useLoaded(() => data(api.GET("/v1/vector_stores/{vector_store_id}/files/{file_id}/content", { params })), [store, file, state]);
  const shown = info.value;
  if (shown === null) return info.error === null ? <Loading /> : <Problem error={info.error} retry={info.reload} />;
  return (
    <div class="page">
      <PageHead title={shown.filename}>
        <div class="actions">
          <a href={to(["knowledge", store])}>{t("kn.store")}</a>
          {may("knowledge:write") && (
            <DialogButton title={t("kn.changeAttributes")}>{(close) => <AttributesForm file={shown} onDone={(made) => (info.set(made), close())} />}</DialogButton>
          )}
        </div>
      </PageHead>
      <p class="actions">
        <FileStatus file={shown} />
        <span class="quiet text">
          {t("kn.chunks")}: {count(shown.chunks.total)} · {bytes(shown.usage_bytes)} · <Time at={shown.created_at} /> {attributesOf(shown) && `· ${attributesOf(shown)}`}
        </span>
      </p>
      {shown.notes.length > 0 && (
        <p class="text">
          <strong>{t("kn.notes")}:</strong> {shown.notes.join(" · ")}
        </p>
      )}
      {content.error !== null && <Problem error={content.error} retry={content.reload} />}
      {content.value ? content.value.data.length ? <Parts parts={content.value.data} place={query.value.get("place")} /> : <Empty title={t("kn.noText")} /> : content.loading && <Loading />}
    </div>
  );
}
