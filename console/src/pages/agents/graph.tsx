/** A team, drawn: who takes part, who speaks after whom, and who speaks now. */
import { useMemo } from "preact/hooks";
import { query, search, to } from "../../route";
import { may } from "../../session";
import { Json, Problem, Status } from "../../ui";
import type { Data } from "../../ui/editor/places";
import { known, language, t } from "../../words";
import { layoutOf, ROWS, WIDTH, type Drawn, type Placed } from "./layout";
import { useLive, type Live } from "./live";
import { teamOf, type Edge, type Node } from "./team";

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
          <span class="unseen">{t(`team.has.${kind}`)}: </span>
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
  const kind = known(`team.kind.${node.kind}`) ? t(`team.kind.${node.kind}` as "team.kind.swarm") : node.kind;
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
  const status = `status.${live.status}`;
  return (
    <p class="live-run" role="status">
      {may("threads:read") ? <a href={to(["runs", run])}>{t("is.run")}</a> : t("is.run")} {known(status) && <Status status={live.status as "running"} />}{" "}
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
          <ul>
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
