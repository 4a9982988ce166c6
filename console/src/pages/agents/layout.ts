/** Where the nodes of a team stand: in columns, each behind those that lead to it. */
import type { Edge, Node, Team } from "./team";

export interface Placed {
  node: Node;
  x: number;
  y: number;
  height: number;
}

export interface Drawn {
  edge: Edge;
  d: string;
  /** The tip of the arrow, and where its words stand. */
  tip: readonly [number, number, "right" | "up"];
  words: readonly [number, number];
}

export const WIDTH = 210;
const [HEAD, LINE, ACROSS, BELOW, EDGE] = [58, 20, 110, 26, 16];
/** Rows of what a node has that are shown, and nodes of a column. */
export const ROWS = 6;
const COLUMN = 8;

/** The edges that lead back to where one came from: they make no column. */
function backward({ nodes, edges }: Team): Set<Edge> {
  const back = new Set<Edge>();
  const state = new Map<string, "open" | "done">();
  const visit = (id: string) => {
    state.set(id, "open");
    for (const edge of edges.filter(({ from }) => from === id)) {
      if (state.get(edge.to) === "open") back.add(edge);
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const { id } of nodes) if (!state.has(id)) visit(id);
  return back;
}

function layers(team: Team): Node[][] {
  const back = backward(team);
  const known = new Map<string, number>();
  const layer = (id: string): number => {
    const found = known.get(id);
    if (found !== undefined) return found;
    known.set(id, 0);
    const before = team.edges.filter((edge) => edge.to === id && !back.has(edge)).map(({ from }) => layer(from) + 1);
    known.set(id, Math.max(0, ...before));
    return known.get(id) ?? 0;
  };
  const made: Node[][] = [];
  for (const node of team.nodes) (made[layer(node.id)] ??= []).push(node);
  // A long column becomes several.
  return [...made].flatMap((column = []) => Array.from({ length: Math.ceil(column.length / COLUMN) }, (_, n) => column.slice(n * COLUMN, (n + 1) * COLUMN)));
}

const heightOf = ({ has }: Node) => HEAD + LINE * Math.min(has.length, ROWS + 1);

function draw(edge: Edge, from: Placed, to: Placed, bottom: number): Drawn {
  if (to.x > from.x) {
    const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + from.height / 2, to.x, to.y + to.height / 2];
    const half = Math.max(40, (x2 - x1) / 2);
    return { edge, d: `M${x1},${y1} C${x1 + half},${y1} ${x2 - half},${y2} ${x2 - 7},${y2}`, tip: [x2, y2, "right"], words: [x2 - 54, y2 - 8 + (y1 - y2) * 0.12] };
  }
  // Back, beneath all that stands between.
  const [x1, y1, x2, y2] = [from.x + WIDTH / 2 + 14, from.y + from.height, to.x + WIDTH / 2 - 14, to.y + to.height];
  const deep = from.x === to.x ? Math.max(y1, y2) + 34 : bottom + 26;
  return { edge, d: `M${x1},${y1} C${x1},${deep} ${x2},${deep} ${x2},${y2 + 7}`, tip: [x2, y2, "up"], words: [(x1 + x2) / 2, Math.max(y1, y2) + (deep - Math.max(y1, y2)) * 0.75 + 6] };
}

export function layoutOf(team: Team) {
  const columns = layers(team);
  const heights = columns.map((column) => column.reduce((sum, node) => sum + heightOf(node) + BELOW, -BELOW));
  const tallest = Math.max(...heights);
  const placed = columns.flatMap((column, n) => {
    let y = EDGE + (tallest - (heights[n] ?? 0)) / 2;
    return column.map((node) => {
      const height = heightOf(node);
      const each = { node, x: EDGE + n * (WIDTH + ACROSS), y, height };
      y += height + BELOW;
      return each;
    });
  });
  const at = new Map(placed.map((each) => [each.node.id, each]));
  const bottom = EDGE + tallest;
  const drawn = team.edges.flatMap((edge) => {
    const [from, to] = [at.get(edge.from), at.get(edge.to)];
    return from && to ? [draw(edge, from, to, bottom)] : [];
  });
  return { width: 2 * EDGE + columns.length * (WIDTH + ACROSS) - ACROSS, height: bottom + 60, placed, drawn };
}
