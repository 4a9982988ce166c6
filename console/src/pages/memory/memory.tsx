/** One memory: the words that it comes from, and all its versions. */
import { api, data } from "../../api";
import { go, to } from "../../route";
import { may } from "../../session";
import { ConfirmButton, count, DialogButton, Facts, PageHead, Show, Time, useLoaded } from "../../ui";
import { t } from "../../words";
import { mayForget, mayWrite, MemoryForm, type MemoryEntry } from "./memories";

function Sources({ memory }: { memory: MemoryEntry }) {
  return (
    <>
      {memory.sources.map((source, n) => (
        <blockquote key={n} class="source text">
          <bdi>{source.quote}</bdi>
          <footer class="quiet">
            {source.said_by && `${t("mem.saidBy", { user: source.said_by })} · `}
            {may("threads:read") && !source.said_by ? <a href={to(["runs", source.run_id])}>{t("is.run")}</a> : source.run_id}
          </footer>
        </blockquote>
      ))}
    </>
  );
}

function Version({ memory }: { memory: MemoryEntry }) {
  return (
    <li class={memory.expired_at ? "card quiet" : "card"}>
      <p class="text">{memory.text}</p>
      <p class="quiet">
        {memory.expired_at ? (memory.ended_by ? t(`mem.ended.${memory.ended_by}`) : null) : <span class="badge">{t("is.current")}</span>} {t(`mem.${memory.kind}`)} · {t("mem.importance")} {memory.importance.toFixed(2)} · {t("mem.since")} <Time at={memory.valid_from} />
        {memory.valid_to && (
          <>
            {" · "}
            {t("mem.until")} <Time at={memory.valid_to} />
          </>
        )}
      </p>
    </li>
  );
}

function Shown({ versions, shared, reload }: { versions: readonly MemoryEntry[]; shared: boolean; reload: () => void }) {
  const memory = versions[0];
  if (memory === undefined) return null;
  const list = to(["memory"], { shared: shared ? "1" : null });
  const forget = async () => {
    await data(api.DELETE("/v1/memories/{memory_id}", { params: { path: { memory_id: memory.id }, query: { shared } } }));
    go(list);
  };
  return (
    <div class="page">
      <PageHead title={t("mem.text")}>
        <div class="actions">
          <a href={list}>{t(shared ? "mem.shared" : "mem.mine")}</a>
          {mayWrite(shared) && (
            <DialogButton title={t("mem.edit")} text={t("do.edit")}>
              {(close) => <MemoryForm memory={memory} shared={shared} onDone={() => (close(), reload())} />}
            </DialogButton>
          )}
          {mayForget(shared) && <ConfirmButton kind="danger" title={t("do.forget")} text={t("mem.forgetText")} onYes={forget} />}
        </div>
      </PageHead>
      <p class="text memory">
        <bdi>{memory.text}</bdi>
      </p>
      <Facts
        of={[
          [t("is.kind"), t(`mem.${memory.kind}`)],
          [t("mem.scope"), memory.scope || t("mem.forAll")],
          [t("mem.importance"), memory.importance.toFixed(2)],
          [t("mem.since"), <Time at={memory.valid_from} />],
          [t("mem.uses"), [count(memory.uses), " ", <Time at={memory.used_at} />]],
          [t("mem.origin"), [t(`mem.origin.${memory.origin}`), <Sources memory={memory} />]],
        ]}
      />
      <h2>{t("mem.history")}</h2>
      <ol class="versions">
        {versions.map((each) => (
          <Version key={each.version_id} memory={each} />
        ))}
      </ol>
    </div>
  );
}

export function OneMemory({ id, shared }: { id: string; shared: boolean }) {
  const history = useLoaded(async () => (await data(api.GET("/v1/memories/{memory_id}/history", { params: { path: { memory_id: id }, query: { shared } } }))).data, [id, shared]);
  return <Show of={history}>{(versions) => <Shown versions={versions} shared={shared} reload={history.reload} />}</Show>;
}
