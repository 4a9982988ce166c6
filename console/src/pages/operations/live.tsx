/** What runs now in the tenant, and in which ways runs have failed within a day. */
import { api, data, type AnyRun } from "../../api";
import { to } from "../../route";
import { count, Lasting, Show, Status, Table, Time, useListing, useLoaded, type Column } from "../../ui";
import { t } from "../../words";

const SHOWN = 20;

const columns = (): Column<AnyRun>[] => [
  { head: t("is.run"), cell: (run) => <a href={to(["runs", run.run_id])}>{run.run_id}</a>, width: "2fr" },
  { head: t("is.team"), cell: (run) => run.team },
  { head: t("is.user"), cell: (run) => <bdi>{run.user}</bdi> },
  { head: t("is.status"), cell: (run) => <Status status={run.status} />, width: "9rem" },
  { head: t("ops.lasts"), cell: (run) => <Lasting from={run.started_at ?? run.created_at} until={run.finished_at} />, width: "6rem" },
  { head: t("ops.worker"), cell: (run) => run.worker ?? "–", wide: true },
  { head: t("is.attempt"), cell: (run) => run.attempt, width: "5rem", numeric: true, wide: true },
];

export function LiveRuns() {
  const ask = (status: "running" | "created") => data(api.GET("/v1/admin/runs", { params: { query: { status, limit: SHOWN } } }));
  const both = async () => ({ data: (await Promise.all([ask("running"), ask("created")])).flatMap((page): AnyRun[] => page.data), has_more: false, next: null });
  return (
    <section class="card live-runs" aria-label={t("ops.live")}>
      <h2>{t("ops.live")}</h2>
      <Table label={t("ops.live")} columns={columns()} listing={useListing(both, [], 5)} empty={t("ops.nothingRuns")} />
    </section>
  );
}

export function Failures() {
  const errors = useLoaded(async () => (await data(api.GET("/v1/admin/errors", { params: { query: { limit: SHOWN } } }))).data, [], 30);
  return (
    <Show of={errors}>
      {(found) =>
        found.length > 0 && (
          <section class="card" aria-label={t("ops.failures")}>
            <h2>{t("ops.failures")}</h2>
            <ul class="failures">
              {found.map((each) => (
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
        )
      }
    </Show>
  );
}
