/** A search in a store: passages with their scores, and where they stand. */
import { useEffect, useState } from "preact/hooks";
import { api, data } from "../../api/client";
import { query, search, to } from "../../route";
import { Button, Field } from "../../ui/controls";
import { useLoaded } from "../../ui/load";
import { Empty, Loading, Problem } from "../../ui/state";
import { t } from "../../words";
import { attributesOf } from "./files";

const OPERATORS = { "=": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte" } as const;

/** A value as it was typed: a number, true or false, or a text, which quotes make of the others, too. */
export function valueOf(text: string): string | number | boolean {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  } catch {
    // It is a text.
  }
  return text;
}

/** `year >= 2026, team = sales` as filters of a search. Throws where a part is no comparison. */
function filtersOf(text: string): { filters?: Record<string, unknown> } {
  const parts = text.split(",").filter((each) => each.trim());
  const filters = parts.map((part) => {
    const [, name, operator, value] = /^\s*(.+?)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*$/.exec(part) ?? [];
    if (name === undefined || value === undefined) throw new Error(`${part.trim()}: ${Object.keys(OPERATORS).join("  ")}`);
    return { type: OPERATORS[operator as keyof typeof OPERATORS], key: name, value: valueOf(value) };
  });
  return filters.length ? { filters: { type: "and", filters } } : {};
}

export function Search({ store }: { store: string }) {
  const asked = query.value.get("q") ?? "";
  const filter = query.value.get("filter") ?? "";
  const [question, setQuestion] = useState(asked);
  const [filters, setFilters] = useState(filter);
  useEffect(() => (setQuestion(asked), setFilters(filter)), [asked, filter]);
  const find = async () => {
    if (!asked) return null;
    const body = { query: asked, max_num_results: 20, ...filtersOf(filter) } as const;
    return await data(api.POST("/v1/vector_stores/{vector_store_id}/search", { params: { path: { vector_store_id: store } }, body: body as never }));
  };
  const found = useLoaded(find, [store, asked, filter]);
  const submit = (event: Event) => {
    event.preventDefault();
    if (question === asked && filters === filter) found.reload();
    else search({ q: question, filter: filters });
  };
  return (
    <>
      <form class="filters search" role="search" onSubmit={submit}>
        <Field label={t("kn.question")} type="search" value={question} onValue={setQuestion} required autofocus />
        <Field label={t("kn.filter")} value={filters} onValue={setFilters} />
        <Button kind="primary" type="submit">
          {t("do.search")}
        </Button>
      </form>
      {found.error !== null ? <Problem error={found.error} retry={found.reload} /> : found.loading && asked ? <Loading lines={6} /> : null}
      {found.error === null && found.value && (
        <>
          <p class="quiet">{[t(`kn.mode.${found.value.mode}`), ...found.value.notes].join(" · ")}</p>
          {found.value.data.length === 0 && <Empty title={t("kn.nothing")} />}
          <ol class="passages">
            {found.value.data.map((each, n) => {
              const text = each.content.map((part) => part.text).join("\n");
              return (
                <li key={n} class="card">
                  <div class="actions">
                    <strong>
                      <bdi>{each.filename}</bdi>
                    </strong>
                    {each.page && <span class="badge">{t("kn.page", { n: each.page })}</span>}
                    <span class="badge">{t("kn.score", { score: each.score.toFixed(3) })}</span>
                    {typeof each.cosine === "number" && <span class="badge">{t("kn.cosine", { cosine: each.cosine.toFixed(3) })}</span>}
                    <span class="quiet text">{[each.headings?.join(" › "), attributesOf(each)].filter(Boolean).join(" · ")}</span>
                    <a href={to(["knowledge", store, "files", each.file_id], { place: String(each.place) })}>{t("kn.where")}</a>
                  </div>
                  <p class="text clipped" tabIndex={0}>
                    {text.trim()}
                  </p>
                </li>
              );
            })}
          </ol>
        </>
      )}
    </>
  );
}
