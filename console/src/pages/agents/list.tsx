/** All that can be asked here: the definitions that are stored, and what the operator's files and programs serve. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import type { Definition } from "../../api/shapes";
import { search, to } from "../../route";
import { may } from "../../session";
import { Field, Select } from "../../ui/controls";
import { paged, useListing, useLoaded } from "../../ui/load";
import { PageHead } from "../../ui/page";
import { Empty, Problem } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { Time } from "../../ui/values";
import { t } from "../../words";
import { agentPath, chosenVisibility, contentOf, kindOf, servedPart, VISIBILITIES, type Visibility } from "./definition";

/** Of one name there may be a definition of the user's, of the tenant's and for all. */
type Row = Omit<Definition, "id"> & { id: string; name: string; kind: string; description: string };

function row(given: Definition): Row {
  const served = servedPart(contentOf(given), given.id);
  const kind = served ? kindOf(served.part, served.section) : "";
  return { ...given, id: `${given.visibility} ${given.id}`, name: given.id, kind, description: String(served?.part["description"] ?? "") };
}

const columns = (): Column<Row>[] => [
  { name: "name", head: t("agents.name"), cell: (each) => <strong dir="auto">{each.name}</strong>, width: "minmax(8rem, 1.2fr)" },
  { name: "kind", head: t("agents.kind"), cell: (each) => <code>{each.kind}</code>, width: "9rem", wide: true },
  { name: "description", head: t("agents.description"), cell: (each) => <bdi>{each.description}</bdi>, width: "minmax(0, 3fr)", wide: true },
  { name: "for", head: t("agents.for"), cell: (each) => <span class="badge">{t(`agents.for.${each.visibility}`)}</span>, width: "7rem" },
  { name: "version", head: t("agents.version"), cell: (each) => each.version, width: "5rem", numeric: true, wide: true },
  { name: "changed", head: t("agents.changed"), cell: (each) => <Time at={each.created_at} />, width: "8rem", wide: true },
  { name: "by", head: t("agents.by"), cell: (each) => <bdi>{each.created_by}</bdi>, width: "8rem", wide: true },
];

/** What can be asked, with the search of its names; of what is stored, the table above tells more. */
function Offered() {
  const offered = useLoaded(async () => (await data(api.GET("/v1/models"))) as { data: { id: string; description?: string }[] }, []);
  const [wanted, setWanted] = useState("");
  if (offered.error !== null && !offered.value) return <Problem error={offered.error} retry={offered.reload} />;
  const words = wanted.toLowerCase();
  const shown = (offered.value?.data ?? []).filter(({ id, description }) => `${id} ${description ?? ""}`.toLowerCase().includes(words));
  return (
    <section aria-labelledby="offered" class="offered">
      <header class="section-head">
        <h2 id="offered">{t("agents.offered")}</h2>
        <Field label={t("do.search")} hideLabel type="search" placeholder={t("do.search")} value={wanted} onValue={setWanted} />
      </header>
      {shown.length === 0 && !offered.loading && <Empty />}
      <ul class="cards offers">
        {shown.slice(0, 200).map(({ id, description }) => (
          <li class="card" key={id}>
            <a href={agentPath(id, null)}>
              <strong dir="auto">{id}</strong>
            </a>
            <p class="quiet clamp">
              <bdi>{description}</bdi>
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function AgentList() {
  const visibility = chosenVisibility();
  const listing = useListing<Row>(
    async (after) => {
      const wanted = { ...paged(after), ...(visibility ? { visibility } : {}) };
      const page = await data(api.GET("/v1/agents", { params: { query: wanted } }));
      return { ...page, data: page.data.map(row) };
    },
    [visibility],
  );
  const options: [Visibility | "", string][] = [["", t("agents.forAny")], ...VISIBILITIES.map((each): [Visibility, string] => [each, t(`agents.for.${each}`)])];
  return (
    <div class="page agents">
      <PageHead title={t("nav.agents")}>
        <Select label={t("agents.for")} hideLabel value={visibility ?? ""} options={options} onValue={(chosen) => search({ for: chosen || null })} />
        {may("agents:write") && (
          <a class="button primary" href={to(["agents"], { new: "1" })}>
            {t("agents.new")}
          </a>
        )}
      </PageHead>
      <Table
        label={t("agents.stored")}
        columns={columns()}
        listing={listing}
        href={(each) => agentPath(each.name, each.visibility)}
        empty={<Empty title={t("agents.none")}>{t("agents.noneHint")}</Empty>}
      />
      <Offered />
    </div>
  );
}
