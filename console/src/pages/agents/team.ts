/** A definition as nodes and edges: who takes part, in which order, and what each of them has. */
import type { Data } from "../../ui/editor/places";
import { t } from "../../words";
import { kindOf, servedPart } from "./definition";

export interface Node {
  id: string;
  name: string;
  role: "team" | "agent" | "part";
  kind: string;
  description: string;
  /** What it has: `["tool", "calculator"]`. */
  has: readonly (readonly ["model" | "tool" | "knowledge" | "memory", string])[];
  /** As it is written; null: nothing is. */
  part: Data | null;
}

export interface Edge {
  from: string;
  to: string;
  label: string;
}

export interface Team {
  nodes: Node[];
  edges: Edge[];
}

const MOST = 200;
const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : value === undefined || value === null ? [] : [String(value)]);
const objects = (value: unknown): Data[] => (Array.isArray(value) ? value.filter((each): each is Data => typeof each === "object" && each !== null) : []);

/** A tool as it is listed, and the agent that it stands for. */
function toolOf(given: unknown, definition: Data): { name: string; agent: string | null } {
  const named = typeof given === "string" ? (definition["tools"] as Data | undefined)?.[given] : given;
  const entry = (typeof named === "object" && named !== null ? named : {}) as Data;
  const agent = typeof entry["agent"] === "string" ? entry["agent"] : null;
  if (typeof given === "string") return { name: given, agent };
  const http = entry["http"] as Data | undefined;
  return { name: String(agent ?? entry["builtin"] ?? entry["registered"] ?? (entry["mcp"] === undefined ? undefined : `mcp: ${String(entry["mcp"])}`) ?? entry["python"] ?? http?.["name"] ?? "?"), agent };
}

function nameOfModel(model: unknown): string {
  return typeof model === "object" && model !== null ? String((model as Data)["profile"] ?? "") : String(model ?? "");
}

function knowledgeOf(given: unknown): string[] {
  if (typeof given !== "object" || given === null || Array.isArray(given)) return texts(given);
  return [...texts((given as Data)["stores"]), ...texts((given as Data)["files"])];
}

/** The edges of a team of some kind, between its participants. */
function between(name: string, part: Data, definition: Data): Edge[] {
  const all = texts(part["participants"]);
  const begins = (first: string | undefined) => (first === undefined ? [] : [{ from: name, to: first, label: t("team.begins") }]);
  switch (part["kind"]) {
    case "round_robin":
      return [...begins(all[0]), ...(all.length > 1 ? all.map((each, n) => ({ from: each, to: all[(n + 1) % all.length] ?? each, label: "" })) : [])];
    case "swarm":
      return [
        ...begins(all[0]),
        ...all.flatMap((each) => texts(servedPart(definition, each)?.part["handoffs"]).map((other) => ({ from: each, to: other, label: "" }))),
      ];
    case "graph": {
      const edges = objects(part["edges"]).map(({ from, to, when }) => ({ from: String(from), to: String(to), label: when === undefined || when === null ? "" : String(when) }));
      const first = part["start"] ? texts(part["start"]) : all.filter((each) => !edges.some(({ to }) => to === each));
      return [...first.flatMap(begins), ...edges];
    }
    default:
      return all.map((each) => ({ from: name, to: each, label: "" }));
  }
}

/** What the strategy of an agent is made of, beside itself. */
function within(name: string, kind: string, options: Data): { parts: [string, string, Data | null][]; edges: Edge[] } {
  const inner = (part: string) => `${name} ${part}`;
  if (kind === "plan_execute") {
    const [planner, executor] = [inner("planner"), inner("executor")];
    const edges = [
      { from: name, to: planner, label: "" },
      { from: planner, to: executor, label: t("team.steps") },
      { from: executor, to: planner, label: t("team.replan") },
    ];
    return { parts: [[planner, t("team.planner"), null], [executor, t("team.executor"), null]], edges };
  }
  if (kind === "reflexion") {
    const judge = inner("judge");
    return { parts: [[judge, t("team.judge"), null]], edges: [{ from: name, to: judge, label: t("runs.kind.attempt") }, { from: judge, to: name, label: t("team.reflection") }] };
  }
  if (kind !== "router") return { parts: [], edges: [] };
  const flows = Object.entries((options["flows"] as Record<string, Data> | null) ?? {});
  const target = (each: Data) => (each["agent"] ? String(each["agent"]) : each["flow"] ? inner(String(each["flow"])) : null);
  const leading = [
    ...objects(options["skills"]).map((each) => ({ each, label: String(each["when"] ?? "") })),
    ...objects(options["patterns"]).map((each) => ({ each, label: `/${String(each["match"])}/` })),
    ...objects([options["fallback"]]).map((each) => ({ each, label: t("team.fallback") })),
  ];
  const edges = leading.flatMap(({ each, label }) => (target(each) === null ? [] : [{ from: name, to: target(each) ?? "", label }]));
  const unled = flows.filter(([flow]) => !edges.some(({ to }) => to === inner(flow))).map(([flow, { when }]) => ({ from: name, to: inner(flow), label: String(when ?? "") }));
  return { parts: flows.map(([flow, part]) => [inner(flow), flow, part]), edges: [...edges, ...unled] };
}

/** What is served under `name`, with all that it is made of. */
export function teamOf(name: string, definition: Data): Team {
  const nodes = new Map<string, Node>();
  const edges: Edge[] = [];
  const add = (each: string) => {
    if (nodes.has(each) || nodes.size >= MOST) return;
    const found = servedPart(definition, each);
    const node = { id: each, name: each, part: found?.part ?? null, description: String(found?.part["description"] ?? "") };
    if (!found) return void nodes.set(each, { ...node, role: "part", kind: each === "user" ? t("team.person") : "", has: [] });
    const { section, part } = found;
    const kind = kindOf(part, section);
    const tools = (Array.isArray(part["tools"]) ? part["tools"] : []).map((tool) => toolOf(tool, definition));
    const has: Node["has"] = [
      ...(part["model"] ? [["model", nameOfModel(part["model"])] as const] : []),
      ...tools.map((tool) => ["tool", tool.name] as const),
      ...knowledgeOf(part["knowledge"]).map((store) => ["knowledge", store] as const),
      ...(part["memory"] ? [["memory", t("team.memory")] as const] : []),
    ];
    nodes.set(each, { ...node, role: section === "teams" ? "team" : "agent", kind, has });
    const strategy = part["strategy"];
    const made = section === "teams" ? { parts: [], edges: between(each, part, definition) } : within(each, kind, typeof strategy === "object" && strategy !== null ? (strategy as Data) : {});
    for (const [id, title, flow] of made.parts) nodes.set(id, { id, name: title, role: "part", kind: flow ? t("team.flow") : "", description: String(flow?.["description"] ?? ""), has: [], part: flow });
    edges.push(...made.edges, ...tools.flatMap(({ agent }) => (agent === null ? [] : [{ from: each, to: agent, label: t("team.tool") }])));
    if (section === "teams") texts(part["participants"]).forEach(add);
    for (const { to } of made.edges) add(to);
    for (const { agent } of tools) if (agent !== null) add(agent);
  };
  add(name);
  return { nodes: [...nodes.values()], edges: edges.filter(({ from, to }) => nodes.has(from) && nodes.has(to)) };
}
