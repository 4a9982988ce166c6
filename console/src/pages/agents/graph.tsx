/** A team, drawn: who takes part, who speaks after whom, and who speaks now. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { follow, type ServerEvent } from "../../api";
import { query, search, to } from "../../route";
import { may } from "../../session";
import { Json, Problem, Status } from "../../ui";
import type { Data } from "../../ui/editor/places";
import { language, t, wordFor } from "../../words";
import { layoutOf, ROWS, WIDTH, type Drawn, type Placed } from "./layout";
import { teamOf, type Edge, type Node } from "./team";

interface Live {
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
function useLive(run: string | null): { live: Live; error: unknown } {
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

const SHORT = 17;
const short = (text: string) => (text.length > SHORT ? `${text.slice(0, SHORT - 1)}…` : text);

function Arrow({ drawn: { edge, d, tip, words } }: { drawn: Drawn }) {
  const [x, y, way] = tip;
  return (
    <g class="edge">
      <path d={d} />
      <polygon points={way === "right" ? `${x},${y} ${x - 9},${y - 5} ${x - 9},${y + 5}` : `${x},${y} ${x - 5},${y + 9} ${x + 5},${y + 9}`} />
      <text x={words[0]} y={words[1]}>
        {short(edge.label)}
      </text>
    </g>
  );
}

function Has({ has }: { has: Node["has"] }) {
  return (
    <ul class="node-has">
      {has.slice(0, ROWS).map(([kind, name], n) => (
        <li key={n} class={kind}>
          <span class="unseen">{t(`is.${kind}`)}: </span>
          <bdi>{name}</bdi>
        </li>
      ))}
      {has.length > ROWS && <li>{t("team.more", { n: has.length - ROWS })}</li>}
    </ul>
  );
}

/** What whoever does not see the arrows is told of them. */
function following(id: string, edges: readonly Edge[], nodes: readonly Node[]): string {
  const name = (other: string) => nodes.find((each) => each.id === other)?.name ?? other;
  return edges
    .filter(({ from }) => from === id)
    .map((edge) => t("team.leadsTo", { name: name(edge.to), label: edge.label }))
    .join(" ");
}

function NodeCard({ placed: { node, x, y, height }, live, chosen, then }: { placed: Placed; live: Live; chosen: boolean; then: string }) {
  const speaks = live.speaking === node.id;
  const kind = wordFor(`team.kind.${node.kind}`, node.kind);
  return (
    <li class={`node ${node.role}${speaks ? " speaks" : ""}`} style={{ left: `${x}px`, top: `${y}px`, width: `${WIDTH}px`, height: `${height}px` }}>
      <button type="button" aria-pressed={chosen} onClick={() => search({ node: chosen ? null : node.id })}>
        <strong dir="auto" title={node.name}>
          {node.name}
        </strong>
        <span class="quiet">{kind}</span>
        {speaks && <span class="badge speaking">{live.tool === null ? t("team.speaks") : t("team.calls", { tool: live.tool })}</span>}
        {!speaks && live.said[node.id] !== undefined && <span class="badge">{t("team.said", { n: live.said[node.id] ?? 0 })}</span>}
        <span class="unseen">{then}</span>
      </button>
      <Has has={node.has} />
    </li>
  );
}

function Told({ run, live, error }: { run: string; live: Live; error: unknown }) {
  if (error !== null) return <Problem error={error} />;
  return (
    <p class="live-run" role="status">
      {may("threads:read") ? <a href={to(["runs", run])}>{t("is.run")}</a> : t("is.run")} {live.status !== null && <Status status={live.status as "running"} />}{" "}
      {live.speaking !== null && <bdi>{live.tool === null ? t("team.nowSpeaks", { name: live.speaking }) : t("team.nowCalls", { name: live.speaking, tool: live.tool })}</bdi>}
    </p>
  );
}

export function TeamGraph({ name, definition }: { name: string; definition: Data }) {
  const team = useMemo(() => teamOf(name, definition), [name, definition, language.value]);
  const { width, height, placed, drawn } = useMemo(() => layoutOf(team), [team]);
  const run = query.value.get("run");
  const { live, error } = useLive(run);
  const chosen = team.nodes.find(({ id }) => id === query.value.get("node"));
  return (
    <section class="team" aria-label={t("team.of", { name })}>
      {run !== null && <Told run={run} live={live} error={error} />}
      <div class="graph scroll-x" tabIndex={0} role="group" aria-label={t("team.graph")}>
        <div class="graph-area" style={{ width: `${width}px`, height: `${height}px` }}>
          <svg width={width} height={height} aria-hidden="true">
            {drawn.map((each, n) => (
              <Arrow key={n} drawn={each} />
            ))}
          </svg>
          <ul class="nodes">
            {placed.map((each) => (
              <NodeCard key={each.node.id} placed={each} live={live} chosen={each.node === chosen} then={following(each.node.id, team.edges, team.nodes)} />
            ))}
          </ul>
        </div>
      </div>
      {chosen ? (
        <article class="card">
          <h2 dir="auto">{chosen.name}</h2>
          {chosen.description && (
            <p class="text">
              <bdi>{chosen.description}</bdi>
            </p>
          )}
          {chosen.part && <Json value={chosen.part} depth={2} />}
        </article>
      ) : (
        <p class="quiet">{t("team.hint")}</p>
      )}
    </section>
  );
}
