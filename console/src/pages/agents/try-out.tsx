/** A chat on a thread that is thrown away, to try what is stored. */
import { useEffect, useRef, useState } from "preact/hooks";
import { api, ApiError, data, eventsOf, post, root, send } from "../../api";
import { search, to } from "../../route";
import { may } from "../../session";
import { Area, Button, isSending, Problem } from "../../ui";
import { Markdown, Thought } from "../../ui/markdown";
import { t } from "../../words";
import { newKey } from "../chat/send";

interface Said {
  by: "user" | "team";
  text: string;
  thought: string;
}

interface Chunk {
  error?: { message: string; code: string };
  choices?: { delta?: { content?: string | null; reasoning_content?: string | null } }[];
  drsai?: { status?: string; input_request?: { prompt?: string } | null };
}

/** A thread of its own, from the first message on, which is deleted with the page. */
function useThread() {
  const thread = useRef<string | null>(null);
  const leaving = useRef<AbortController | null>(null);
  const discard = (keepalive = false) => {
    leaving.current?.abort();
    const left = thread.current;
    thread.current = null;
    if (left === null || !may("threads:delete")) return;
    const gone = () => send(new Request(`${root}/v1/threads/${encodeURIComponent(left)}`, { method: "DELETE", keepalive }));
    // What it is still doing ends with it, a moment later.
    void gone().catch(() => setTimeout(() => void gone().catch(() => undefined), 2000));
  };
  useEffect(() => {
    const leave = () => discard(true);
    addEventListener("pagehide", leave);
    return () => (removeEventListener("pagehide", leave), discard());
  }, []);
  return { thread, leaving, discard };
}

function Message({ by, text, thought }: Said) {
  return (
    <div class={`said ${by}`}>
      <span class="unseen">{t(by === "user" ? "is.you" : "agents.answer")}: </span>
      {thought && <Thought text={thought} />}
      {by === "user" ? <p class="text">{text}</p> : <Markdown text={text || "…"} />}
    </div>
  );
}

export function TryOut({ name, note }: { name: string; note?: string }) {
  const { thread, leaving, discard } = useThread();
  const [said, setSaid] = useState<readonly Said[]>([]);
  const [text, setText] = useState("");
  const [run, setRun] = useState<string | null>(null);
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const add = (content: string, thought = "") =>
    setSaid((all) => {
      const last = all.at(-1);
      return last ? [...all.slice(0, -1), { ...last, text: last.text + content, thought: last.thought + thought }] : all;
    });
  const ask = async () => {
    const message = text.trim();
    if (!message || asking) return;
    thread.current ??= `try-${newKey()}`;
    setText("");
    setError(null);
    setAsking(true);
    setSaid((all) => [...all, { by: "user", text: message, thought: "" }, { by: "team", text: "", thought: "" }]);
    const controller = (leaving.current = new AbortController());
    try {
      const body = { model: name, thread_id: thread.current, stream: true, on_disconnect: "cancel", messages: [{ role: "user", content: message }] };
      const response = await post("/v1/chat/completions", body, { signal: controller.signal });
      const started = response.headers.get("x-run-id");
      setRun(started);
      // The graph of the team shows it.
      search({ run: started });
      for await (const { data: frame } of eventsOf(response)) {
        if (frame === "[DONE]") break;
        const { error: failed, choices, drsai } = JSON.parse(frame) as Chunk;
        if (failed) throw new ApiError(failed.message, 424, failed.code);
        const { content, reasoning_content: thought } = choices?.[0]?.delta ?? {};
        if (content || thought) add(content ?? "", thought ?? "");
        if (drsai?.status === "awaiting_input" && drsai.input_request?.prompt && !content) add(`\n\n${drsai.input_request.prompt}`);
      }
    } catch (failed) {
      if (!controller.signal.aborted) setError(failed);
    } finally {
      setAsking(false);
    }
  };
  const clear = () => {
    discard();
    setSaid([]);
    setRun(null);
    setError(null);
    search({ run: null });
  };
  const stop = () => (leaving.current?.abort(), thread.current && data(api.POST("/v1/threads/{thread_id}/cancel", { params: { path: { thread_id: thread.current } } })));
  return (
    <aside class="try" aria-label={t("do.try")}>
      <header class="section-head">
        <h2>{t("do.try")}</h2>
        <span class="quiet">{note}</span>
        {run && may("threads:read") && <a href={to(["runs", run])}>{t("is.run")}</a>}
        {said.length > 0 && <Button onClick={clear}>{t("do.clear")}</Button>}
      </header>
      <div class="try-said" role="log" tabIndex={0} aria-label={t("runs.way.conversation")} aria-busy={asking}>
        {said.length === 0 && <p class="quiet">{t("agents.tryHint")}</p>}
        {said.map((each, n) => (
          <Message key={n} {...each} />
        ))}
        {error !== null && <Problem error={error} />}
      </div>
      <form class="try-ask" onSubmit={(event) => (event.preventDefault(), void ask())} onKeyDown={(event) => event.target instanceof HTMLTextAreaElement && isSending(event) && void ask()}>
        <Area label={t("is.message")} rows={2} value={text} onValue={setText} />
        {asking && may("runs:cancel") ? (
          <Button onClick={stop}>{t("do.stop")}</Button>
        ) : (
          <Button kind="primary" type="submit" disabled={asking || !text.trim()}>
            {t("do.send")}
          </Button>
        )}
      </form>
    </aside>
  );
}
