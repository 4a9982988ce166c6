/** The model calls of a run, and of each what the model was sent, in whichever form its endpoint got it, and has answered. */
import { api, data, type Call, type CallInFull, type Run } from "../../api";
import { asked, chosen, search } from "../../route";
import { Button, clock, CopyButton, count, duration, Empty, Facts, Folded, Json, Select, Show, useLoaded } from "../../ui";
import { Diff } from "../../ui/diff";
import { t } from "../../words";
import { Inspector } from "./inspector";
import { useCalls } from "./log";

interface Part {
  /** Of a call, or of its result, the tool. */
  name: string;
  text: string;
}
interface Said {
  role: string;
  parts: Part[];
}
type Data = Record<string, unknown>;

const written = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined || value === null ? [] : [value]);

function partOf(value: unknown): Part {
  if (typeof value !== "object" || value === null) return { name: "", text: written(value) ?? "" };
  const part = value as Data;
  const called = part["function"] as Data | undefined;
  if (called) return { name: written(called["name"]), text: written(called["arguments"]) };
  if (part["type"] === "tool_use") return { name: written(part["name"]), text: written(part["input"]) };
  if ("arguments" in part) return { name: written(part["name"]), text: written(part["arguments"]) };
  if (part["type"] === "text" || part["type"] === "input_text") return { name: "", text: written(part["text"]) };
  if ("call_id" in part || part["type"] === "tool_result") return { name: written(part["name"] ?? part["call_id"] ?? part["tool_use_id"]), text: written(part["content"]) };
  return { name: "", text: written(value) };
}

function saidOf(value: unknown): Said {
  const message = value as Data;
  const role = message["role"] ?? message["type"] ?? "";
  const parts = [...list(message["thought"] ?? message["reasoning_content"]), ...list(message["content"]), ...list(message["tool_calls"])];
  return { role: written(role), parts: parts.map(partOf) };
}

/** The messages of a request in the form of OpenAI, Anthropic or AutoGen, and after them the answer. */
function conversationOf(request: unknown, answer: unknown): Said[] {
  const sent = (request ?? {}) as Data;
  const system = list(sent["system"]);
  return [
    ...(system.length ? [{ role: "system", parts: system.map(partOf) }] : []),
    ...list(sent["messages"]).map(saidOf),
    ...(answer ? [{ ...saidOf(answer), role: t("runs.answer") }] : []),
  ];
}

function Conversation({ said }: { said: readonly Said[] }) {
  return (
    <ol class="dialogue">
      {said.map((each, n) => (
        <li key={n} class={`said-${each.role}`}>
          <span class="kind">{each.role}</span>
          {each.parts.map((part, place) => (
            <div key={place}>
              {part.name && <code>{part.name}</code>}
              <pre class="wrap">
                <Folded text={part.text} most={20_000} />
              </pre>
            </div>
          ))}
        </li>
      ))}
    </ol>
  );
}

const WAYS = ["conversation", "raw", "diff"] as const;

function useCall(run: string, call: string | null) {
  const load = async () => (call === null ? null : await data(api.GET("/v1/runs/{run_id}/calls/{call_id}", { params: { path: { run_id: run, call_id: call } } })));
  return useLoaded(load, [run, call]);
}

function Compared({ run, call, calls, request }: { run: string; call: Call; calls: readonly Call[]; request: unknown }) {
  const place = calls.findIndex((each) => each.call_id === call.call_id);
  const others = calls.filter((each) => each.call_id !== call.call_id && each.is_kept);
  const other = others.find((each) => each.call_id === asked("with")) ?? calls.slice(0, place).findLast((each) => each.is_kept) ?? others[0];
  const compared = useCall(run, other?.call_id ?? null);
  if (!other) return <Empty title={t("runs.noOther")} />;
  return (
    <>
      <Select
        label={t("runs.comparedWith")}
        value={other.call_id}
        options={others.map((each) => [each.call_id, `${each.call_id} ${each.agent ?? ""} ${each.model ?? ""}`])}
        onValue={(id) => search({ with: id })}
      />
      <Show of={compared}>{(value) => <Diff before={value?.request} after={request} label={t("runs.way.diff")} />}</Show>
    </>
  );
}

function Kept({ run, call, calls, value }: { run: string; call: Call; calls: readonly Call[]; value: CallInFull }) {
  const way = chosen("as", WAYS) ?? "conversation";
  const { request, answer } = value;
  if (!value.is_kept) return <Empty title={t("runs.notKept")}>{value.reason}</Empty>;
  return (
    <>
      <div class="filters" role="group" aria-label={t("runs.show")}>
        {WAYS.map((each) => (
          <Button key={each} pressed={way === each} onClick={() => search({ as: each })}>
            {t(`runs.way.${each}`)}
          </Button>
        ))}
        <CopyButton text={JSON.stringify({ request, answer }, null, 2)} />
      </div>
      {!!value.left_out && <p class="quiet">{t("runs.leftOut", { n: value.left_out })}</p>}
      {way === "conversation" && <Conversation said={conversationOf(request, answer)} />}
      {way === "raw" && <Json value={{ request, answer }} depth={4} />}
      {way === "diff" && <Compared run={run} call={call} calls={calls} request={request} />}
    </>
  );
}

function Detail({ run, call, calls }: { run: string; call: Call; calls: readonly Call[] }) {
  const loaded = useCall(run, call.call_id);
  return (
    <div class="stack">
      <h2>
        <bdi>{call.model ?? t("runs.kind.model")}</bdi> <code class="quiet">{call.call_id}</code>
      </h2>
      <Facts
        class="fact-line"
        of={[
          [t("is.agent"), call.agent],
          [t("runs.kind.tool"), call.tool],
          [t("runs.profile"), call.profile],
          [t("runs.answered"), clock(call.answered_ms)],
          [t("runs.duration"), duration(call.seconds)],
          [t("is.tokens"), t("runs.inOut", { in: count(call.prompt_tokens), out: count(call.completion_tokens) })],
          [t("runs.turn"), call.turn],
        ]}
      />
      <Show of={loaded}>{(value) => value && <Kept run={run} call={call} calls={calls} value={value} />}</Show>
    </div>
  );
}

export function Calls({ run, live }: { run: Run; live: boolean }) {
  const known = useCalls(run.run_id, live);
  const list = (calls: readonly Call[]) => (
    <Inspector
      label={t("runs.tab.calls")}
      class="calls"
      rows={calls}
      idOf={(call) => call.call_id}
      live={live}
      empty={t("runs.noCalls")}
      row={(call) => (
        <>
          <code class="quiet">{call.call_id}</code>
          <bdi>{call.agent ?? ""}</bdi>
          <bdi class="quiet">{call.model ?? ""}</bdi>
          <span class="numeric">{t("runs.inOut", { in: count(call.prompt_tokens), out: count(call.completion_tokens) })}</span>
          <span class="numeric">{duration(call.seconds)}</span>
        </>
      )}
      detail={(call) => <Detail key={call.call_id} run={run.run_id} call={call} calls={calls} />}
    />
  );
  return <Show of={known}>{list}</Show>;
}
