/** Who speaks in a run, from its events. */
import { useEffect, useState } from "preact/hooks";
import { follow, type ServerEvent } from "../../api";

export interface Live {
  speaking: string | null;
  /** The tool that it has called and that has not returned. */
  tool: string | null;
  status: string | null;
  /** How many messages each has said. */
  said: Readonly<Record<string, number>>;
}

const NOBODY: Live = { speaking: null, tool: null, status: null, said: {} };

function heard(live: Live, event: ServerEvent): Live {
  const source = typeof event["source"] === "string" ? event["source"] : null;
  switch (event.type) {
    case "status":
      return { ...live, status: "running" };
    case "delta":
    case "thought":
      return live.speaking === source && live.tool === null ? live : { ...live, speaking: source, tool: null };
    case "tool_call":
      return { ...live, speaking: source, tool: String(event["name"]) };
    case "tool_result":
      return { ...live, tool: null };
    case "message":
      // It has spoken; who is next, the next event tells.
      return source === null || source === "user" ? live : { ...live, speaking: null, tool: null, said: { ...live.said, [source]: (live.said[source] ?? 0) + 1 } };
    case "input_request":
      return { ...live, speaking: "user", tool: null, status: "awaiting_input" };
    case "error":
      return event.id === null ? live : { ...live, speaking: null, tool: null, status: "error" };
    case "end":
      return { ...live, speaking: event["status"] === "awaiting_input" ? live.speaking : null, tool: null, status: String(event["status"]) };
    default:
      return live;
  }
}

/** Follow a run; null: none. */
export function useLive(run: string | null): { live: Live; error: unknown } {
  const [live, setLive] = useState(NOBODY);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    setLive(NOBODY);
    setError(null);
    if (run === null) return;
    const leaving = new AbortController();
    follow(`/v1/runs/${encodeURIComponent(run)}/events`, (event) => setLive((old) => heard(old, event)), leaving.signal).catch(setError);
    return () => leaving.abort();
  }, [run]);
  return { live, error };
}
