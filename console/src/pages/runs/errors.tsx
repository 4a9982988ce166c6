/** In which ways runs have failed: what is worst comes first. */
import { api, data, type Listed } from "../../api";
import { chosen, search, to } from "../../route";
import { count, optionsOf, paged, Select, Table, Time, useListing, type Column } from "../../ui";
import { t } from "../../words";

type Group = Listed<"/v1/admin/errors">;
const SPANS = ["1", "24", "168", "720"] as const;
const PAUSE = 10;

const since = (hours: string) => Math.floor(Date.now() / 1000 - Number(hours) * 3600);

/** The failures of so many hours, those that are alike together. */
export function Failures({ label, hours }: { label: string; hours: string }) {
  const listing = useListing((after) => data(api.GET("/v1/admin/errors", { params: { query: { from: since(hours), ...paged(after) } } })), [hours], PAUSE);
  const newest = (group: Group) => (
    <a href={to(["runs", group.run_id])}>
      <code>{group.run_id}</code>
    </a>
  );
  const columns: Column<Group>[] = [
    { head: t("runs.by.error_code"), width: "minmax(8rem, 1fr)", cell: (group) => <code>{group.error_code}</code> },
    { head: t("is.team"), width: "minmax(6rem, 1fr)", cell: (group) => <bdi>{group.team}</bdi> },
    { head: t("nav.runs"), width: "4rem", numeric: true, cell: (group) => count(group.runs) },
    { head: t("runs.last"), width: "7rem", wide: true, cell: (group) => <Time at={group.last_at} /> },
    { head: t("runs.reason"), width: "minmax(8rem, 4fr)", wide: true, cell: (group) => <bdi title={group.error_message}>{group.error_message}</bdi> },
    { head: t("runs.newestRun"), width: "minmax(7rem, 1fr)", wide: true, cell: newest },
  ];
  const found = (group: Group) => to(["runs"], { status: "error", error_code: group.error_code, team: group.team, from: String(since(hours)) });
  return <Table label={label} columns={columns} listing={listing} href={found} empty={t("runs.noErrors")} />;
}

export function Errors() {
  const hours = chosen("hours", SPANS) ?? "24";
  return (
    <>
      <div class="filters">
        <Select label={t("runs.span")} value={hours} options={optionsOf(SPANS, (each) => t(`runs.span.${each}`))} onValue={(chosen) => search({ hours: chosen })} />
      </div>
      <Failures label={t("runs.kinds.error")} hours={hours} />
    </>
  );
}
