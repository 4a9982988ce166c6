/** One memory: the words that it comes from, and all its versions. */
import { api, data } from "../../api/client";
import { go, to } from "../../route";
import { may } from "../../session";
import { ConfirmButton, DialogButton } from "../../ui/form";
import { useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Loading, Problem } from "../../ui/state";
import { count, Time } from "../../ui/values";
import { t } from "../../words";
import { MemoryForm } from "./form";
import { mayForget, mayWrite, type MemoryEntry } from "./memories";

function Sources({ memory }: { memory: MemoryEntry }) {
  return (
    <>
      {memory.sources.map((source, n) => (
        <blockquote key={n} class="source text">
          <bdi>{source.quote}</bdi>
          <footer class="quiet">
            {source.said_by && `${t("mem.saidBy", { user: source.said_by })} · `}
            {may("threads:read") && !source.said_by ? <a href={to(["runs", source.run_id])}>{t("mem.run")}</a> : source.run_id}
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
        {memory.expired_at ? (memory.ended_by ? t(`mem.ended.${memory.ended_by}`) : null) : <span class="badge">{t("mem.current")}</span>} {t(`mem.${memory.kind}`)} · {t("mem.importance")} {memory.importance.toFixed(2)} · {t("mem.since")} <Time at={memory.valid_from} />
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

export function OneMemory({ id, shared }: { id: string; shared: boolean }) {
  const params = { path: { memory_id: id }, query: { shared } };
  const history = useLoaded(() => data(api.GET("/v1/memories/{memory_id}/history", { params })), [id, shared]);
  const memory = history.value?.data[0];
  if (memory === undefined) return history.error === null ? <Loading /> : <Problem error={history.error} retry={history.reload} />;
  const list = to(["memory"], { shared: shared ? "1" : null });
  const forget = async () => {
    await data(api.DELETE("/v1/memories/{memory_id}", { params }));
    go(list);
  };
  return (
    <div class="page">
      <PageHead title={t("mem.text")}>
        <div class="actions">
          <a href={list}>{t(shared ? "mem.shared" : "mem.mine")}</a>
          {mayWrite(shared) && (
            <DialogButton title={t("mem.edit")} text={t("do.edit")}>
              {(close) => <MemoryForm memory={memory} shared={shared} onDone={() => (close(), history.reload())} />}
            </DialogButton>
          )}
          {mayForget(shared) && (
            <ConfirmButton kind="danger" title={t("mem.forget")} text={t("mem.forgetText")} onYes={forget}>
              {t("mem.forget")}
            </ConfirmButton>
          )}
        </div>
      </PageHead>
      <p class="text memory">
        <bdi>{memory.text}</bdi>
      </p>
      <dl class="facts">
        <dt>{t("mem.kind")}</dt>
        <dd>{t(`mem.${memory.kind}`)}</dd>
        <dt>{t("mem.scope")}</dt>
        <dd>{memory.scope || t("mem.forAll")}</dd>
        <dt>{t("mem.importance")}</dt>
        <dd>{memory.importance.toFixed(2)}</dd>
        <dt>{t("mem.since")}</dt>
        <dd>
          <Time at={memory.valid_from} />
        </dd>
        <dt>{t("mem.uses")}</dt>
        <dd>
          {count(memory.uses)} <Time at={memory.used_at} />
        </dd>
        <dt>{t("mem.origin")}</dt>
        <dd>
          {t(`mem.origin.${memory.origin}`)}
          <Sources memory={memory} />
        </dd>
      </dl>
      <h2>{t("mem.history")}</h2>
      <ol class="versions">
        {history.value?.data.map((each) => (
          <Version key={each.version_id} memory={each} />
        ))}
      </ol>
    </div>
  );
}
