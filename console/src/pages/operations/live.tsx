/** What runs now in the tenant, and in which ways runs have failed within a day. */
import { api, data } from "../../api/client";
import type { AnyRun, Listed } from "../../api/shapes";
import { to } from "../../route";
import { useLoaded } from "../../ui/load";
import { Empty, Loading, Problem } from "../../ui/state";
import { count, Lasting, Status, Time } from "../../ui/values";
import { t } from "../../words";

const SHOWN = 20;

export function LiveRuns() {
  const ask = (status: "running" | "created") => data(api.GET("/v1/admin/runs", { params: { query: { status, limit: SHOWN } } }));
  const runs = useLoaded(async () => (await Promise.all([ask("running"), ask("created")])).flatMap((page): AnyRun[] => page.data), [], 5);
  if (runs.value === null) return runs.error === null ? <Loading /> : <Problem error={runs.error} retry={runs.reload} />;
  const rows = runs.value;
  return (
    <section class="card" aria-label={t("ops.live")}>
      <h2>{t("ops.live")}</h2>
      {runs.error !== null && <Problem error={runs.error} retry={runs.reload} />}
      {rows.length === 0 ? (
        <Empty title={t("ops.nothingRuns")} />
      ) : (
        <div class="scroll-x" tabIndex={0}>
          <table class="plain">
            <thead>
              <tr>
                {[t("ops.run"), t("ops.team"), t("ops.user"), t("kn.status"), t("ops.lasts"), t("ops.worker"), t("ops.attempt")].map((head) => (
                  <th key={head}>{head}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((run) => (
                <tr key={run.id}>
                  <td>
                    <a href={to(["runs", run.run_id])}>{run.run_id}</a>
                  </td>
                  <td>{run.team}</td>
                  <td>
                    <bdi>{run.user}</bdi>
                  </td>
                  <td>
                    <Status status={run.status} />
                  </td>
                  <td>
                    <Lasting from={run.started_at ?? run.created_at} until={run.finished_at} />
                  </td>
                  <td>{run.worker ?? "–"}</td>
                  <td class="numeric">{run.attempt}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

type Failure = Listed<"/v1/admin/errors">;

export function Failures() {
  const errors = useLoaded(() => data(api.GET("/v1/admin/errors", { params: { query: { limit: SHOWN } } })), [], 30);
  if (errors.value === null) return errors.error === null ? null : <Problem error={errors.error} retry={errors.reload} />;
  if (errors.value.data.length === 0) return null;
  return (
    <section class="card" aria-label={t("ops.failures")}>
      <h2>{t("ops.failures")}</h2>
      <ul class="failures">
        {errors.value.data.map((each: Failure) => (
          <li key={each.id}>
            <strong class="numeric">{count(each.runs)}</strong>
            <span class="badge">{each.error_code}</span>
            <span>{each.team}</span>
            <span class="quiet clip" title={each.error_message}>
              {each.error_message}
            </span>
            <Time at={each.last_at} />
            <a href={to(["runs", each.run_id])}>{t("ops.newest")}</a>
          </li>
        ))}
      </ul>
    </section>
  );
}
