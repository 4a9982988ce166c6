/** What runs are looked for by. It stands in the address, so a link shows the same. */
import { useEffect, useState } from "preact/hooks";
import { query, search } from "../../route";
import { may, me } from "../../session";
import { Button, Field, Select } from "../../ui/controls";
import { t } from "../../words";
import { FILTERS, type Filter } from "./rows";

const STATUSES = ["created", "running", "awaiting_input", "paused", "completed", "stopped", "error"] as const;
const QUIET = 350;

/** A field whose value goes into the address when the typing pauses. */
function SearchField({ name, type = "text" }: { name: Filter; type?: "text" | "number" }) {
  const stored = query.value.get(name) ?? "";
  const [text, setText] = useState(stored);
  useEffect(() => setText(stored), [stored]);
  useEffect(() => {
    if (text === stored) return;
    const timer = setTimeout(() => search({ [name]: text.trim() || null }), QUIET);
    return () => clearTimeout(timer);
  }, [text, stored]);
  return <Field label={t(`runs.by.${name}`)} type={type} value={text} onValue={setText} />;
}

/** Unix seconds as a field of the browser's has them: its own time, without a zone. */
function local(seconds: string): string {
  const date = new Date(Number(seconds) * 1000);
  return seconds && !Number.isNaN(date.getTime()) ? new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
}

function MomentField({ name }: { name: "from" | "to" }) {
  const put = (value: string) => search({ [name]: value ? String(Math.floor(new Date(value).getTime() / 1000)) : null });
  return <Field label={t(`runs.by.${name}`)} type="datetime-local" value={local(query.value.get(name) ?? "")} onValue={put} />;
}

export function StatusFilter() {
  return (
    <Select
      label={t("runs.by.status")}
      value={query.value.get("status") ?? ""}
      options={[["", t("runs.any")], ...STATUSES.map((each) => [each, t(`status.${each}`)] as [string, string])]}
      onValue={(status) => search({ status: status || null })}
    />
  );
}

export function RunFilters() {
  const [more, setMore] = useState(() => FILTERS.slice(3).some((name) => query.value.has(name)));
  if (!may("runs:admin"))
    return (
      <div class="filters" role="search">
        <StatusFilter />
      </div>
    );
  const mine = me.value?.user ?? "";
  return (
    <div class="filters run-filters" role="search">
      <StatusFilter />
      <SearchField name="team" />
      <SearchField name="user" />
      <Select
        label={t("runs.order")}
        value={query.value.get("order") === "slow" ? "slow" : "newest"}
        options={[
          ["newest", t("runs.newest")],
          ["slow", t("runs.slow")],
        ]}
        onValue={(order) => search({ order: order === "slow" ? order : null })}
      />
      <Button pressed={query.value.get("user") === mine} onClick={() => search({ user: query.value.get("user") === mine ? null : mine })}>
        {t("runs.mine")}
      </Button>
      <Button kind="ghost" pressed={more} onClick={() => setMore(!more)}>
        {t("runs.moreFilters")}
      </Button>
      {more && (
        <>
          <SearchField name="text" />
          <SearchField name="tool" />
          <SearchField name="thread" />
          <SearchField name="error_code" />
          <SearchField name="error" />
          <SearchField name="slower_than" type="number" />
          <MomentField name="from" />
          <MomentField name="to" />
        </>
      )}
      {[...FILTERS, "order"].some((name) => query.value.has(name)) && (
        <Button kind="ghost" onClick={() => search(Object.fromEntries([...FILTERS, "order"].map((name) => [name, null])))}>
          {t("do.clear")}
        </Button>
      )}
    </div>
  );
}
