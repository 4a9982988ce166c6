/** A question to a person, and how it is answered where it stands. */
import { useRef, useState } from "preact/hooks";
import { ApiError, post, type Asked } from "../../api";
import { may, me } from "../../session";
import { Area, Button, duration, isSending, Json, now, objectOf, tell } from "../../ui";
import { Markdown } from "../../ui/markdown";
import { t, wordFor } from "../../words";
import { newKey, pathOf } from "../chat/send";
import type { Right } from "../chat/store";
import "./question.css";

/** Whether whoever looks is among those who are asked. `right`: theirs in the thread, which whoever is named needs not. */
function isForMe({ by, not_by, asker }: Asked, right: Right): boolean {
  const { user = "", roles = [] } = me.value ?? {};
  if (not_by === "asker" && asker === user) return false;
  return by ? [`user:${user}`, ...roles.map((each) => `role:${each}`)].includes(by) : right !== "read";
}

type Answer = { text: string } | { decision: string; text?: string; reason?: string; arguments?: unknown } | { results: { id: string; content: string }[] };

interface QuestionProps {
  asked: Asked;
  thread: string;
  owner: string | null;
  right?: Right;
  /** It is answered: by whoever looks at it, or by somebody else meanwhile. */
  onDone: () => void;
}

/** How long is left; said by the second. */
function Deadline({ at }: { at: string }) {
  const left = Date.parse(at) / 1000 - now.value;
  return <span class={left < 60 ? "badge urgent" : "badge"}>{left > 0 ? t("ask.left", { time: duration(Math.floor(left)) }) : t("ask.over")}</span>;
}

type Give = (answer: Answer) => Promise<void>;

function Decision({ asked, give }: { asked: Asked; give: Give }) {
  const [reason, setReason] = useState("");
  const [changed, setChanged] = useState<string | null>(null);
  const edit = async () => {
    const given = objectOf(changed ?? "");
    if (typeof given === "string") throw new Error(given);
    await give({ decision: "edit", arguments: given });
  };
  return (
    <>
      {changed !== null && <Area label={t("ask.arguments")} value={changed} onValue={setChanged} rows={6} />}
      <Area label={t("ask.reason")} value={reason} onValue={setReason} rows={1} />
      <div class="row">
        {changed === null ? (
          <>
            <Button kind="primary" onClick={() => give({ decision: "approve" })}>{t("ask.approve")}</Button>
            <Button onClick={() => setChanged(JSON.stringify(asked.tool?.arguments ?? {}, null, 2))}>{t("ask.edit")}</Button>
          </>
        ) : (
          <Button kind="primary" onClick={edit}>{t("ask.edit")}</Button>
        )}
        <Button kind="danger" onClick={() => give({ decision: "deny", ...(reason ? { reason } : {}) })}>{t("ask.deny")}</Button>
      </div>
    </>
  );
}

/** Of a call that was cut, when nobody knows whether it happened. */
function Retry({ give }: { give: Give }) {
  const [result, setResult] = useState("");
  return (
    <>
      <Area label={t("ask.result")} rows={2} value={result} onValue={setResult} />
      <div class="row">
        <Button kind="primary" onClick={() => give({ decision: "run" })}>{t("ask.run")}</Button>
        <Button disabled={!result} onClick={() => give({ decision: "result", text: result })}>{t("ask.result")}</Button>
        <Button kind="danger" onClick={() => give({ decision: "stop" })}>{t("ask.stop")}</Button>
      </div>
    </>
  );
}

function Results({ asked, give }: { asked: Asked; give: Give }) {
  const [results, setResults] = useState<Record<string, string>>({});
  const calls = asked.tool_calls ?? [];
  return (
    <>
      {calls.map(({ id, name, arguments: given }) => (
        <div key={id}>
          <code>{`${name}(${given})`}</code>
          <Area label={t("ask.resultOf", { tool: name })} rows={2} value={results[id] ?? ""} onValue={(value) => setResults((old) => ({ ...old, [id]: value }))} />
        </div>
      ))}
      <Button kind="primary" disabled={calls.some(({ id }) => !results[id])} onClick={() => give({ results: calls.map(({ id }) => ({ id, content: results[id] ?? "" })) })}>
        {t("ask.send")}
      </Button>
    </>
  );
}

function Text({ asked, give }: { asked: Asked; give: Give }) {
  const [text, setText] = useState("");
  const sent = useRef<HTMLDivElement>(null);
  return (
    <>
      {!!asked.choices?.length && (
        <div class="row">
          {asked.choices.map((each) => (
            <Button key={each} onClick={() => give({ text: each })}>{each}</Button>
          ))}
        </div>
      )}
      <div ref={sent} class="row answer" onKeyDown={(event) => event.target instanceof HTMLTextAreaElement && isSending(event) && sent.current?.querySelector("button")?.click()}>
        <Area label={t("ask.answer")} rows={2} value={text} onValue={setText} />
        <Button kind="primary" disabled={!text.trim()} onClick={() => give({ text })}>{t("ask.send")}</Button>
      </div>
    </>
  );
}

export function Question({ asked, thread, owner, right = "answer", onDone }: QuestionProps) {
  const key = useRef(newKey());
  const give = async (answer: Answer) => {
    try {
      await post(pathOf({ id: thread, owner }, "input"), { id: asked.id, ...answer }, { "idempotency-key": key.current });
      tell(t("ask.done"));
    } catch (error) {
      if (!(error instanceof ApiError) || (error.code !== "input_request_stale" && error.status !== 404)) {
        // Another answer than the one that was refused is another request.
        if (error instanceof ApiError && error.status !== 0) key.current = newKey();
        throw error;
      }
      tell(t("ask.stale"), "problem");
    }
    onDone();
  };
  const kind = wordFor(`ask.kind.${asked.kind}`, asked.kind);
  const Form = asked.kind === "tool_retry" ? Retry : asked.type === "approval" ? Decision : asked.type === "tool_results" ? Results : Text;
  return (
    <div class="question" role="group" aria-label={kind}>
      <header class="row">
        <span class="badge">{kind}</span> <bdi class="speaker">{asked.source}</bdi>
        {asked.deadline && <Deadline at={asked.deadline} />}
      </header>
      <div class="prompt">
        <Markdown text={asked.prompt} />
      </div>
      {asked.tool && (
        <div class="tool-value">
          <bdi class="mono">{asked.tool.name}</bdi>
          <Json value={asked.tool.arguments} />
        </div>
      )}
      {!isForMe(asked, right) ? (
        <p class="quiet">
          {t("ask.forOthers")} <bdi>{asked.by}</bdi>
        </p>
      ) : may("chat") ? (
        <Form asked={asked} give={give} />
      ) : (
        <p class="quiet">{t("ask.mayNot")}</p>
      )}
    </div>
  );
}
