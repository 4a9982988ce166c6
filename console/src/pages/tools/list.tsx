/** What the tenant has registered, with how its calls went, and what the server offers besides. */
import { api, data } from "../../api/client";
import { to } from "../../route";
import { may } from "../../session";
import { paged, useListing, useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Empty, Problem } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { count, duration, Time } from "../../ui/values";
import { t } from "../../words";
import { failuresOf, type Tool } from "./tool";

const seconds = (value: number | null) => (value === null ? "–" : duration(value));

const columns = (): Column<Tool>[] => [
  { name: "name", head: t("agents.name"), cell: (each) => <strong dir="auto">{each.id}</strong>, width: "minmax(8rem, 1.5fr)" },
  { name: "type", head: t("tools.type"), cell: (each) => <span class="badge">{t(`tools.type.${each.type}`)}</span>, width: "8.5rem" },
  { name: "description", head: t("agents.description"), cell: (each) => <bdi>{String((each.config as { description?: string }).description ?? "")}</bdi>, width: "minmax(0, 2.5fr)", wide: true },
  { name: "calls", head: t("tools.calls"), cell: (each) => count(each.statistics.calls), width: "6rem", numeric: true, wide: true },
  { name: "failures", head: t("tools.failures"), cell: (each) => failuresOf(each.statistics), width: "6.5rem", numeric: true, wide: true },
  { name: "half", head: t("tools.half"), cell: (each) => seconds(each.statistics.p50_seconds), width: "7rem", numeric: true, wide: true },
  { name: "most", head: t("tools.most"), cell: (each) => seconds(each.statistics.p95_seconds), width: "7rem", numeric: true, wide: true },
  { name: "version", head: t("agents.version"), cell: (each) => each.version, width: "4.5rem", numeric: true, wide: true },
  { name: "changed", head: t("agents.changed"), cell: (each) => <Time at={each.created_at} />, width: "8rem", wide: true },
];

interface Offered {
  name: string;
  description?: string;
}

function OfServer({ registered }: { registered: readonly Tool[] }) {
  const offered = useLoaded(async () => (await data(api.GET("/api/v1/agent/tools"))).tools as unknown as Offered[], []);
  if (offered.error !== null && !offered.value) return <Problem error={offered.error} retry={offered.reload} />;
  const own = new Set(registered.map(({ id }) => id));
  return (
    <section class="offered" aria-labelledby="offered">
      <h2 id="offered">{t("tools.offered")}</h2>
      <ul class="cards offers">
        {(offered.value ?? [])
          .filter(({ name }) => !own.has(name))
          .map(({ name, description }) => (
            <li class="card" key={name}>
              <strong dir="auto">{name}</strong>
              <p class="quiet clamp" title={description}>
                <bdi>{description}</bdi>
              </p>
            </li>
          ))}
      </ul>
    </section>
  );
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
      {may("chat") && <OfServer registered={listing.rows} />}
    </div>
  );
}
