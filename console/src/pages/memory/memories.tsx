/** What is remembered: a list, a search in it, and whether anything is learnt. */
import { useState } from "preact/hooks";
import { api, ApiError, blob, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { query, search, to } from "../../route";
import { may } from "../../session";
import { Button, Field, Select, Tabs } from "../../ui/controls";
import { ConfirmButton, DialogButton } from "../../ui/form";
import { paged, useListing, useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { save } from "../../ui/save";
import { Empty, Problem } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { tell } from "../../ui/toast";
import { Time } from "../../ui/values";
import { t } from "../../words";
import { MemoryForm } from "./form";

export type MemoryEntry = Listed<"/v1/memories">;
export const KINDS = ["fact", "preference", "episode"] as const;

/** Whether what is remembered may be changed: of all users' common memory that takes one scope more. */
export const mayWrite = (shared: boolean) => may("memory:write") && (!shared || may("knowledge:write"));
export const mayForget = (shared: boolean) => may("memory:delete") && (!shared || may("knowledge:write"));

const columns = (): Column<MemoryEntry & { score?: number }>[] => [
  { name: "text", head: t("mem.text"), cell: (row) => <bdi title={row.text}>{row.text}</bdi>, width: "4fr" },
  { name: "kind", head: t("mem.kind"), cell: (row) => <span class="badge">{t(`mem.${row.kind}`)}</span>, width: "7rem" },
  { name: "scope", head: t("mem.scope"), cell: (row) => row.scope || <span class="quiet">{t("mem.forAll")}</span>, width: "8rem", wide: true },
  { name: "importance", head: t("mem.importance"), cell: (row) => row.importance.toFixed(2), width: "7rem", numeric: true, wide: true },
  { name: "origin", head: t("mem.origin"), cell: (row) => t(`mem.origin.${row.origin}`), width: "9rem", wide: true },
  { name: "since", head: t("mem.since"), cell: (row) => <Time at={row.valid_from} />, width: "8rem", wide: true },
];

/** Whether this server learns from what one says: a box to tick, unless it is not said who one is. */
function Learning() {
  const settings = useLoaded(() => data(api.GET("/v1/memories/settings")), []);
  const now = settings.value;
  if (now === null) return settings.error === null ? null : <Problem error={settings.error} retry={settings.reload} />;
  if (now.note) return <p class="quiet">{now.note}</p>;
  const change = async (learns: boolean) => {
    try {
      settings.set(await data(api.PATCH("/v1/memories/settings", { body: { learns } })));
    } catch (error) {
      tell((error as Error).message, "problem");
    }
  };
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
  const asked = query.value.get("q") ?? "";
  const kind = KINDS.find((each) => each === query.value.get("kind"));
  const scope = query.value.get("scope") ?? "";
  const [question, setQuestion] = useState(asked);
  const of = { shared, ...(scope ? { scope } : {}) };
  const page = async (after: string | number | null) => {
    if (!asked) return await data(api.GET("/v1/memories", { params: { query: { ...of, ...(kind ? { kind } : {}), ...paged(after) } } }));
    const found = await data(api.GET("/v1/memories/search", { params: { query: { ...of, query: asked, top_k: 50 } } }));
    return { ...found, data: found.data.filter((each) => !kind || each.kind === kind) };
  };
  const listing = useListing<MemoryEntry & { score?: number }>(page, [asked, kind, scope, shared]);
  const shownColumns = asked ? [...columns(), { name: "score", head: t("do.search"), cell: (row: { score?: number }) => row.score?.toFixed(2), width: "5rem", numeric: true }] : columns();
  // Nothing is remembered of whom a server does not know, which is no fault: `Learning` says so.
  const unknown = listing.error instanceof ApiError && listing.error.status === 403 && may("memory:read");
  const submit = (event: Event) => {
    event.preventDefault();
    search({ q: question });
  };
  const forgetAll = async () => {
    const { versions } = await data(api.DELETE("/v1/memories", { params: { query: { shared } } }));
    tell(t("mem.forgotten", { n: versions }));
    listing.reload();
  };
  const download = async () => save(shared ? "shared-memories.jsonl" : "memories.jsonl", await blob(`/v1/memories/export?shared=${shared}`));
  const empty = (
    <Empty title={t("mem.none")}>
      <p>{t("mem.noneHow")}</p>
    </Empty>
  );
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
            {mayForget(shared) && (
              <ConfirmButton title={t("mem.forgetAll")} text={t("mem.forgetAllText")} name={t("mem.forget")} onYes={forgetAll}>
                {t("mem.forgetAll")}
              </ConfirmButton>
            )}
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
          <form class="filters search" role="search" onSubmit={submit}>
            <Field label={t("do.search")} type="search" value={question} onValue={(value) => (setQuestion(value), value || search({ q: null }))} />
            <Select label={t("mem.kind")} value={kind ?? ""} options={[["", t("mem.allKinds")], ...KINDS.map((each) => [each, t(`mem.${each}`)] as const)]} onValue={(value) => search({ kind: value || null })} />
            <Field label={t("mem.scope")} value={scope} onValue={(value) => search({ scope: value || null })} />
            <Button type="submit">{t("do.search")}</Button>
          </form>
          <Table label={t("nav.memory")} columns={shownColumns} listing={listing} href={(row) => to(["memory", row.id], { shared: shared ? "1" : null })} empty={empty} />
        </>
      )}
    </div>
  );
}
