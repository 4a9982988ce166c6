/** The log of a run as it is told: every event, and its JSON. */
import { useMemo } from "preact/hooks";
import { asked } from "../../route";
import { count, Json, optionsOf, SearchField, SearchSelect } from "../../ui";
import { t } from "../../words";
import { Inspector } from "./inspector";
import type { Heard, Log } from "./log";

/** What an event says, in a line. */
function lineOf({ event, pieces }: Heard): string {
  const [name, told] = [event["name"] ?? event["message_type"] ?? event["status"], event["content"] ?? event["text"] ?? event["result"] ?? event["arguments"] ?? event["stop_reason"]];
  const failed = (event["error"] as { message?: string } | undefined)?.message;
  return [pieces > 1 ? `×${pieces}` : "", name, told ?? failed].filter((each) => typeof each === "string" && each).join(" ").slice(0, 300);
}

export function Events({ log, live }: { log: Log; live: boolean }) {
  const [type, text] = [asked("type"), asked("text")];
  const types = useMemo(() => [...new Set(log.heard.map((each) => each.event.type))].sort(), [log.heard]);
  const shown = useMemo(() => {
    const sought = text.toLowerCase();
    return log.heard.filter((each) => (!type || each.event.type === type) && (!sought || JSON.stringify(each.event).toLowerCase().includes(sought)));
  }, [log.heard, type, text]);
  return (
    <>
      <div class="filters" role="search">
        <SearchSelect label={t("is.type")} name="type" options={optionsOf(types)} any={t("is.all")} />
        <SearchField label={t("do.search")} name="text" />
        <span class="quiet">{t("of.rows", { n: count(shown.length) })}</span>
      </div>
      <Inspector
        label={t("runs.tab.events")}
        class="events"
        rows={shown}
        idOf={(each) => each.id}
        live={live}
        row={(each) => (
          <>
            <code class="quiet">{each.event.id ?? "–"}</code> <span class={`kind ${each.event.type === "error" ? "error" : ""}`}>{each.event.type}</span>{" "}
            <bdi class="quiet">{typeof each.event["source"] === "string" ? each.event["source"] : ""}</bdi>{" "}
            <bdi>{lineOf(each)}</bdi>
          </>
        )}
        detail={(each) => (
          <div class="stack">
            <h2>{each.event.type}</h2>
            <Json value={each.event} depth={3} />
          </div>
        )}
      />
    </>
  );
}
