/** What the tenant has registered, with how its calls went, and what the server offers besides. */
import { api, data } from "../../api";
import { to } from "../../route";
import { may } from "../../session";
import { count, Empty, PageHead, paged, Table, Time, useListing, useLoaded, type Column } from "../../ui";
import { t } from "../../words";
import { Offers, toolsOf } from "../agents/offers";
import { Servers } from "./servers";
import { failuresOf, seconds, type Tool } from "./tool";

const columns = (): Column<Tool>[] => [
  { head: t("is.name"), cell: (each) => <strong dir="auto">{each.id}</strong>, width: "minmax(8rem, 1.5fr)" },
  { head: t("is.type"), cell: (each) => <span class="badge">{t(`tools.type.${each.type}`)}</span>, width: "8.5rem" },
  { head: t("agents.description"), cell: (each) => <bdi>{String((each.config as { description?: string }).description ?? "")}</bdi>, width: "minmax(0, 2.5fr)", wide: true },
  { head: t("tools.calls"), cell: (each) => count(each.statistics.calls), width: "6rem", numeric: true, wide: true },
  { head: t("tools.failures"), cell: (each) => failuresOf(each.statistics), width: "6.5rem", numeric: true, wide: true },
  { head: t("tools.half"), cell: (each) => seconds(each.statistics.p50_seconds), width: "7rem", numeric: true, wide: true },
  { head: t("tools.most"), cell: (each) => seconds(each.statistics.p95_seconds), width: "7rem", numeric: true, wide: true },
  { head: t("is.version"), cell: (each) => each.version, width: "4.5rem", numeric: true, wide: true },
  { head: t("agents.changed"), cell: (each) => <Time at={each.created_at} />, width: "8rem", wide: true },
];

function OfServer({ registered }: { registered: readonly Tool[] }) {
  const offered = useLoaded(toolsOf, []);
  const own = new Set(registered.map(({ id }) => id));
  const others = offered.value && offered.value.filter(({ id }) => !own.has(id));
  return <Offers title={t("tools.offered")} of={{ ...offered, value: others }} />;
}

export function ToolList() {
  const listing = useListing<Tool>((after) => data(api.GET("/v1/tools", { params: { query: paged(after) } })), []);
  return (
    <div class="page agents">
      <PageHead title={t("nav.tools")}>
        {may("tools:register") && (
          <a class="button primary" href={to(["tools"], { new: "1" })}>
            {t("tools.register")}
          </a>
        )}
      </PageHead>
      <Table label={t("tools.registered")} columns={columns()} listing={listing} href={(each) => to(["tools", each.id])} empty={<Empty title={t("tools.none")}>{t("tools.noneHint")}</Empty>} />
      <Servers />
      {may("chat") && <OfServer registered={listing.rows} />}
    </div>
  );
}
