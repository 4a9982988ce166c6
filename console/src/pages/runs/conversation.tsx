/** What a model was sent, as a conversation, in whichever form its endpoint got it. */
import { Folded } from "../../ui";
import { t } from "../../words";

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
export function conversationOf(request: unknown, answer: unknown): Said[] {
  const sent = (request ?? {}) as Data;
  const system = list(sent["system"]);
  return [
    ...(system.length ? [{ role: "system", parts: system.map(partOf) }] : []),
    ...list(sent["messages"]).map(saidOf),
    ...(answer ? [{ ...saidOf(answer), role: t("runs.answer") }] : []),
  ];
}

export function Conversation({ said }: { said: readonly Said[] }) {
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
