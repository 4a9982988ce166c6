/** A search in a store: passages with their scores, and where they stand. */
import { useState } from "preact/hooks";
import { api, data } from "../../api";
import { asked, to } from "../../route";
import { Empty, Field, SearchForm, Show, useLoaded } from "../../ui";
import { t } from "../../words";
import { attributesOf, valueOf } from "./files";

const OPERATORS = { "=": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte" } as const;

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

async function find(store: string, question: string, filter: string) {
  const body = { query: question, max_num_results: 20, ...filtersOf(filter) } as const;
  return await data(api.POST("/v1/vector_stores/{vector_store_id}/search", { params: { path: { vector_store_id: store } }, body: body as never }));
}

function Passages({ store, found: { mode, notes, data: passages } }: { store: string; found: Awaited<ReturnType<typeof find>> }) {
  return (
    <>
      <p class="quiet">{[t(`kn.mode.${mode}`), ...notes].join(" · ")}</p>
      {passages.length === 0 && <Empty title={t("kn.nothing")} />}
      <ol class="passages">
        {passages.map((each, n) => (
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
              {each.content.map((part) => part.text).join("\n").trim()}
            </p>
          </li>
        ))}
      </ol>
    </>
  );
}

export function Search({ store }: { store: string }) {
  const [question, filter] = [asked("q"), asked("filter")];
  const [times, setTimes] = useState(0);
  const found = useLoaded(async () => (question ? await find(store, question, filter) : null), [store, question, filter, times]);
  return (
    <>
      <SearchForm onSearch={() => setTimes(times + 1)}>
        <Field label={t("kn.question")} name="q" type="search" value={question} required autofocus />
        <Field label={t("kn.filter")} name="filter" value={filter} />
      </SearchForm>
      {question && (
        <Show of={found} lines={6}>
          {(made) => made && <Passages store={store} found={made} />}
        </Show>
      )}
    </>
  );
}
