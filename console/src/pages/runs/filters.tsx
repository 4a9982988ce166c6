/** What runs are looked for by. It stands in the address, so a link shows the same. */
import { useState } from "preact/hooks";
import { asked, query, search } from "../../route";
import { may, me } from "../../session";
import { Button, Field, optionsOf, SearchField, SearchSelect } from "../../ui";
import { t } from "../../words";
import { FILTERS, type Filter } from "./rows";

const STATUSES = ["created", "running", "awaiting_input", "paused", "completed", "stopped", "error"] as const;
/** What is seldom looked for. */
const SELDOM = ["text", "tool", "thread", "error_code", "error", "slower_than"] as const satisfies readonly Filter[];
const KEPT = [...FILTERS, "order"];

/** Unix seconds as a field of the browser's has them: its own time, without a zone. */
function local(seconds: string): string {
  const date = new Date(Number(seconds) * 1000);
  return seconds && !Number.isNaN(date.getTime()) ? new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
}

function MomentField({ name }: { name: "from" | "to" }) {
  const put = (value: string) => search({ [name]: value ? String(Math.floor(new Date(value).getTime() / 1000)) : null });
  return <Field label={t(`runs.by.${name}`)} type="datetime-local" value={local(asked(name))} onValue={put} />;
}

export function RunFilters() {
  const [more, setMore] = useState(() => FILTERS.slice(3).some((name) => query.value.has(name)));
  const status = <SearchSelect label={t("is.status")} name="status" options={optionsOf(STATUSES, (each) => t(`status.${each}`))} any={t("runs.any")} />;
  if (!may("runs:admin"))
    return (
      <div class="filters" role="search">
        {status}
      </div>
    );
  const mine = me.value?.user ?? "";
  const isMine = asked("user") === mine;
  return (
    <div class="filters run-filters" role="search">
      {status}
      <SearchField label={t("is.team")} name="team" type="text" />
      <SearchField label={t("is.user")} name="user" type="text" />
      <SearchSelect label={t("runs.order")} name="order" options={[["slow", t("runs.slow")]]} any={t("runs.newest")} />
      <Button pressed={isMine} onClick={() => search({ user: isMine ? null : mine })}>
        {t("runs.mine")}
      </Button>
      <Button kind="ghost" pressed={more} onClick={() => setMore(!more)}>
        {t("runs.moreFilters")}
      </Button>
      {more && (
        <>
          {SELDOM.map((name) => (
            <SearchField key={name} label={t(`runs.by.${name}`)} name={name} type={name === "slower_than" ? "number" : "text"} />
          ))}
          <MomentField name="from" />
          <MomentField name="to" />
        </>
      )}
      {KEPT.some((name) => query.value.has(name)) && (
        <Button kind="ghost" onClick={() => search(Object.fromEntries(KEPT.map((name) => [name, null])))}>
          {t("do.clear")}
        </Button>
      )}
    </div>
  );
}
