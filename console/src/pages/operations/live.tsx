/** What runs now in the tenant, and in which ways runs have failed within a day. */
import { api, data, type AnyRun } from "../../api";
import { to } from "../../route";
import { Lasting, Status, Table, useListing, type Column } from "../../ui";
import { t } from "../../words";
import { Failures } from "../runs/errors";

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

const ask = (status: "running" | "created") => data(api.GET("/v1/admin/runs", { params: { query: { status, limit: SHOWN } } }));

async function live() {
  const pages = await Promise.all([ask("running"), ask("created")]);
  return { data: pages.flatMap((page): AnyRun[] => page.data), has_more: false, next: null };
}

export function Live() {
  return (
    <>
      <section class="card live-runs" aria-label={t("ops.live")}>
        <h2>{t("ops.live")}</h2>
        <Table label={t("ops.live")} columns={columns()} listing={useListing(live, [], 5)} empty={t("ops.nothingRuns")} />
      </section>
      <section class="card live-runs" aria-label={t("ops.failures")}>
        <h2>{t("ops.failures")}</h2>
        <Failures label={t("ops.failures")} hours="24" />
      </section>
    </>
  );
}
