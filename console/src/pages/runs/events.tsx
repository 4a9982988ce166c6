/** What a run has told and said: every event of its log, its messages as they are stored, and their JSON. */
import { useMemo, useState } from "preact/hooks";
import type { Message, Run } from "../../api";
import { asked } from "../../route";
import { allOf, Button, CopyButton, count, Json, optionsOf, SearchField, SearchSelect, Show, useLoaded, type After } from "../../ui";
import { t } from "../../words";
import { messagesOf } from "../chat/branches";
import { Inspector } from "./inspector";
import type { Heard, Log } from "./log";
import { branchOf, threadOf } from "./past";

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

const PAUSE = 4;

async function load(run: Run): Promise<Message[]> {
  const { first_seq: first, last_seq: last } = run;
  if (!first) return [];
  const branch = await branchOf(run);
  const page = async (after: After) => {
    const made = await messagesOf(threadOf(run), branch, after === null ? first - 1 : Number(after));
    const ends = last > 0 && (made.data.at(-1)?.seq ?? 0) >= last;
    return ends ? { ...made, next: null } : made;
  };
  const found = await allOf(page);
  return found.filter((each) => each.run_id === run.run_id || (each.run_id === null && (!last || each.seq <= last)));
}

function Detail({ message }: { message: Message }) {
  const [raw, setRaw] = useState(false);
  return (
    <div class="stack">
      <h2>
        <bdi>{message.source}</bdi> <span class="quiet">{message.type}</span>
      </h2>
      <div class="filters">
        <Button pressed={raw} onClick={() => setRaw(!raw)}>
          {t("runs.way.raw")}
        </Button>
        <CopyButton text={JSON.stringify(message.message, null, 2)} />
      </div>
      {raw ? <pre class="wrap">{JSON.stringify(message.message, null, 2)}</pre> : <Json value={message.message} depth={3} />}
    </div>
  );
}

export function Messages({ run, live }: { run: Run; live: boolean }) {
  const found = useLoaded(() => load(run), [run.run_id, live, run.last_seq], live ? PAUSE : 0);
  const list = (messages: readonly Message[]) => (
    <Inspector
      label={t("runs.tab.messages")}
      class="events"
      rows={messages}
      idOf={(each) => String(each.seq)}
      live={live}
      empty={t("runs.noMessages")}
      row={(each) => (
        <>
          <code class="quiet">{each.seq}</code>
          <span class="kind">{each.type}</span>
          <bdi class="quiet">{each.source}</bdi>
          <bdi>{each.content.slice(0, 300)}</bdi>
        </>
      )}
      detail={(each) => <Detail message={each} />}
    />
  );
  return <Show of={found}>{list}</Show>;
}
