/** In which ways runs have failed: what is worst comes first. */
import { api, data } from "../../api/client";
import { query, search, to } from "../../route";
import { Select } from "../../ui/controls";
import { useListing } from "../../ui/load";
import { Empty } from "../../ui/state";
import { type Column, Table } from "../../ui/table";
import { count, Time } from "../../ui/values";
import type { Listed } from "../../api/shapes";
import { t } from "../../words";

type Group = Listed<"/v1/admin/errors">;
const SPANS = ["1", "24", "168", "720"] as const;
const PAUSE = 10;

const since = (hours: string) => Math.floor(Date.now() / 1000 - Number(hours) * 3600);

export function Errors() {
  const asked = query.value.get("hours") ?? "";
  const hours = SPANS.find((each) => each === asked) ?? "24";
  const listing = useListing(() => data(api.GET("/v1/admin/errors", { params: { query: { from: since(hours), limit: 100 } } })), [hours], PAUSE);
  const columns: Column<Group>[] = [
    { name: "code", head: t("runs.by.error_code"), width: "minmax(8rem, 1fr)", cell: (group) => <code>{group.error_code}</code> },
    { name: "team", head: t("runs.by.team"), width: "minmax(6rem, 1fr)", cell: (group) => <bdi>{group.team}</bdi> },
    { name: "runs", head: t("nav.runs"), width: "4rem", numeric: true, cell: (group) => count(group.runs) },
    { name: "last", head: t("runs.last"), width: "7rem", wide: true, cell: (group) => <Time at={group.last_at} /> },
    { name: "text", head: t("runs.reason"), width: "minmax(8rem, 4fr)", wide: true, cell: (group) => <bdi title={group.error_message}>{group.error_message}</bdi> },
    {
      name: "newest",
      head: t("runs.newestRun"),
      width: "minmax(7rem, 1fr)",
      wide: true,
      cell: (group) => (
        <a href={to(["runs", group.run_id])}>
          <code>{group.run_id}</code>
        </a>
      ),
    },
  ];
  const found = (group: Group) => to(["runs"], { status: "error", error_code: group.error_code, team: group.team, from: String(since(hours)) });
  return (
    <>
      <div class="filters">
        <Select label={t("runs.span")} value={hours} options={SPANS.map((each) => [each, t(`runs.span.${each}`)])} onValue={(chosen) => search({ hours: chosen })} />
      </div>
      <Table label={t("runs.errors")} columns={columns} listing={listing} href={found} empty={<Empty title={t("runs.noErrors")} />} />
    </>
  );
}
