/** Where the nodes and edges of a flow graph are, given the room there is: rows are tokens, columns are depths. Pure arithmetic. */
import type { Edge, Flow } from "../model/flow";

export interface Room {
  width: number;
  height: number;
  /** Width in pixels of the widest label of a row, and of what is said of the target. */
  labels: number;
  target: number;
}

export interface Row {
  top: number;
  height: number;
  /** How many rows are drawn as this one: more than 1 where nothing flows. */
  folded: number;
}

export interface Band {
  edge: Edge;
  /** The middle of its ends. */
  x: [number, number];
  y: [number, number];
  /** Proportional to what flows, and nothing else, so that widths add up. */
  width: number;
}

export interface Streams {
  /** Pixels per unit of flow. */
  scale: number;
  left: number;
  /** By depth. */
  columns: number[];
  /** By row of the flow; rows of a fold share one. */
  rows: Row[];
  bands: Band[];
  width: number;
  bottom: number;
}

const HEADER = 22;
const SMALLEST_ROW = 15;
const LARGEST_STREAM = 96;
const GAP = 3;
const FOLD = 13;
/** Texts with more tokens fold those through which nothing flows. */
const MOST_UNFOLDED = 48;

export function streams(flow: Flow, room: Room): Streams {
  const left = Math.ceil(room.labels) + 14;
  const right = room.width - Math.ceil(room.target) - 14;
  const depths = flow.relevance.length;
  const columns = Array.from({ length: depths }, (_, at) => left + ((right - left) * at) / Math.max(1, depths - 1));
  const flows = thickest(flow);
  const folds = foldsOf(flow, flows);
  const scale = scaleOf(flows, folds, room.height - HEADER);
  const rows = rowsOf(flows, folds, scale);
  const last = rows[rows.length - 1];
  return {
    scale,
    left,
    columns,
    rows,
    bands: bandsOf(flow, { scale, columns, rows }),
    width: room.width,
    bottom: last ? last.top + last.height : HEADER,
  };
}

export function middle({ top, height }: Row): number {
  return top + height / 2;
}

/** For every row the most that flows through one of its nodes, by absolute value. */
function thickest(flow: Flow): Float64Array {
  const most = new Float64Array(flow.rows.members.length);
  for (const values of flow.relevance) {
    for (const [row, value] of values.entries()) most[row] = Math.max(most[row]!, Math.abs(value));
  }
  const sums = new Map<string, number>();
  for (const { layer, from, to, value } of flow.edges) {
    for (const [row, name] of [
      [from, `${layer}<${from}`],
      [to, `${layer}>${to}`],
    ] as const) {
      const sum = (sums.get(name) ?? 0) + Math.abs(value);
      sums.set(name, sum);
      most[row] = Math.max(most[row]!, sum);
    }
  }
  return most;
}

/** For every row how many rows from it on are drawn as one; 0 inside a fold. */
function foldsOf(flow: Flow, flows: Float64Array): number[] {
  const count = flows.length;
  const folds = Array.from({ length: count }, () => 1);
  if (count <= MOST_UNFOLDED) return folds;
  const touched = new Set(flow.edges.flatMap(({ from, to }) => [from, to]));
  for (let row = 0; row < count; row++) {
    let end = row;
    while (end < count && !touched.has(end)) end++;
    if (end - row < 2) continue;
    folds.fill(0, row, end);
    folds[row] = end - row;
    row = end - 1;
  }
  return folds;
}

function heightOf(flow: number, fold: number, scale: number): number {
  return fold === 0 ? 0 : GAP + (fold > 1 ? FOLD : Math.max(SMALLEST_ROW, flow * scale));
}

function scaleOf(flows: Float64Array, folds: number[], height: number): number {
  const most = Math.max(...flows, 1e-30);
  const total = (scale: number): number =>
    folds.reduce((sum, fold, row) => sum + heightOf(flows[row]!, fold, scale), 0);
  const room = Math.max(height, total(0) + 240);
  let [low, high] = [0, LARGEST_STREAM / most];
  if (total(high) <= room) return high;
  for (let step = 0; step < 40; step++) {
    const scale = (low + high) / 2;
    if (total(scale) <= room) low = scale;
    else high = scale;
  }
  return low;
}

function rowsOf(flows: Float64Array, folds: number[], scale: number): Row[] {
  const rows: Row[] = [];
  let top = HEADER;
  folds.forEach((fold, row) => {
    if (fold === 0) {
      rows.push(rows[row - 1]!);
      return;
    }
    const height = heightOf(flows[row]!, fold, scale);
    rows.push({ top, height, folded: fold });
    top += height;
  });
  return rows;
}

/** The edges, those at a node one upon the other in the order of their other ends. */
function bandsOf(flow: Flow, { scale, columns, rows }: Pick<Streams, "scale" | "columns" | "rows">): Band[] {
  const bands = flow.edges.map((edge): Band => {
    const [before, after] = [columns[edge.layer - 1]!, columns[edge.layer]!];
    const y: [number, number] = [middle(rows[edge.from]!), middle(rows[edge.to]!)];
    return { edge, x: [before, after], y, width: Math.abs(edge.value) * scale };
  });
  for (const end of [0, 1] as const) {
    const here = end === 0 ? "from" : "to";
    const beyond = end === 0 ? "to" : "from";
    for (const stack of grouped(bands, ({ edge }) => edge.layer * rows.length + edge[here])) {
      stack.sort((a, b) => a.edge[beyond] - b.edge[beyond]);
      let y = middle(rows[stack[0]!.edge[here]]!) - stack.reduce((sum, { width }) => sum + width, 0) / 2;
      for (const band of stack) {
        band.y[end] = y + band.width / 2;
        y += band.width;
      }
    }
  }
  return bands;
}

function grouped<Item>(items: Item[], nameOf: (item: Item) => number): Item[][] {
  const groups = new Map<number, Item[]>();
  for (const item of items) {
    const name = nameOf(item);
    const group = groups.get(name);
    if (group) group.push(item);
    else groups.set(name, [item]);
  }
  return [...groups.values()];
}
