/** The messages of a run as they are stored. */
import { useState } from "preact/hooks";
import type { Message, Run } from "../../api";
import { allOf, Button, CopyButton, Json, Show, useLoaded, type After } from "../../ui";
import { t } from "../../words";
import { Inspector } from "./inspector";
import { branchOf, messagesOf } from "./past";

const PAUSE = 4;

async function load(run: Run): Promise<Message[]> {
  const first = run.first_seq ?? 0;
  const last = run.last_seq ?? 0;
  if (!first) return [];
  const branch = await branchOf(run);
  const page = async (after: After) => {
    const made = await messagesOf(run.thread_id, branch, after === null ? first - 1 : Number(after));
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
