/** Where the nodes and edges of a flow graph are, given the room there is: rows are tokens, columns are depths. Pure arithmetic. */
import type { Edge, Flow } from "../model/flow";

export interface Room {
  width: number;
  height: number;
  /** Width in pixels of the widest label of a row, and of the label of the target. */
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

/** Flow into or out of a node that is not an edge: the sum of edges that are left out, or a bias. */
export interface Stub {
  depth: number;
  row: number;
  side: "into" | "out";
  kind: "rest" | "bias";
  value: number;
  y: number;
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
  stubs: Stub[];
  /** By depth, then row; a fold's first row has what its tokens have together, and the others nothing. */
  relevance: Float64Array[];
  /** The least height of a row. */
  smallest: number;
  width: number;
  bottom: number;
}

const HEADER = 22;
/** Rows of a long text are thinner, so that it can be looked at as a whole. */
const ROW = { most: 15, least: 5, together: 1100 };
/** Of the height there is, for the widest stream. */
const LARGEST_STREAM = 0.25;
const GAP = 0.2;
/** The most space added between rows where there is more height than they need, in pixels. */
const MOST_SPARE = 14;
const FOLD = 13;
/** In pixels: thinner ones cannot be seen. */
const SMALLEST_STUB = 0.05;
/** Texts with more tokens also fold those that no edge touches. */
const MOST_UNFOLDED = 48;

export function streams(flow: Flow, room: Room): Streams {
  const left = Math.ceil(room.labels) + 14;
  const right = room.width - Math.ceil(room.target) - 14;
  const depths = flow.relevance.length;
  const columns = Array.from({ length: depths }, (_, at) => left + ((right - left) * at) / Math.max(1, depths - 1));
  const folds = foldsOf(flow);
  const totals = totalsOf(flow, folds);
  const flows = thickest(flow, totals);
  const smallest = smallestOf(folds);
  const heightOf = (row: number, scale: number): number => {
    const fold = folds[row]!;
    return fold === 0 ? 0 : GAP * smallest + Math.max(fold > 1 ? FOLD : smallest, flows[row]! * scale);
  };
  const scale = scaleOf(flows, heightOf, room.height - HEADER);
  const spare = spareOf(folds, (row) => heightOf(row, scale), room.height - HEADER);
  const rows = rowsOf(folds, (row) => heightOf(row, scale) + spare);
  const last = rows[rows.length - 1];
  return {
    scale,
    left,
    columns,
    rows,
    ...stacked(flow, totals, { scale, columns, rows }),
    relevance: totals.relevance,
    smallest,
    width: room.width,
    bottom: last ? last.top + last.height : HEADER,
  };
}

export function middle({ top, height }: Row): number {
  return top + height / 2;
}

/** What is at every node in addition to its edges, by depth, then row; tokens of a fold are put together at its first row. */
interface Totals {
  relevance: Float64Array[];
  into: Float64Array[];
  out: Float64Array[];
  bias: Float64Array[];
}

function totalsOf({ relevance, rest, bias }: Flow, folds: number[]): Totals {
  const together = (values: Float64Array): Float64Array => {
    const sums = new Float64Array(folds.length);
    let first = 0;
    folds.forEach((fold, row) => {
      if (fold > 0) first = row;
      sums[first]! += values[row] ?? 0;
    });
    return sums;
  };
  return {
    relevance: relevance.map(together),
    into: rest.into.map(together),
    out: rest.out.map(together),
    bias: [new Float64Array(), ...bias].map(together),
  };
}

/** For every row the most that is at one of its nodes, or enters or leaves it, by absolute value. */
function thickest(flow: Flow, { relevance, into, out, bias }: Totals): Float64Array {
  const size = (values: Float64Array[], depth: number, row: number): number => Math.abs(values[depth]?.[row] ?? 0);
  const entering = relevance.map((values, depth) =>
    values.map((_, row) => size(into, depth, row) + size(bias, depth, row)),
  );
  const leaving = relevance.map((values, depth) => values.map((_, row) => size(out, depth, row)));
  for (const { layer, from, to, value } of flow.edges) {
    leaving[layer - 1]![from]! += Math.abs(value);
    entering[layer]![to]! += Math.abs(value);
  }
  const all = [...relevance, ...entering, ...leaving];
  return new Float64Array(flow.rows.members.length).map((_, row) =>
    all.reduce((most, values) => Math.max(most, Math.abs(values[row]!)), 0),
  );
}

/** For every row how many rows from it on are drawn as one (tokens no value comes to, such as later ones); 0 inside a fold. */
function foldsOf(flow: Flow): number[] {
  const count = flow.rows.members.length;
  const folds = Array.from({ length: count }, () => 1);
  const needed = new Set(flow.edges.flatMap(({ from, to }) => [from, to]));
  if (count <= MOST_UNFOLDED) {
    const reached = (row: number): boolean => [...flow.relevance, ...flow.bias].some((values) => values[row] !== 0);
    for (let row = 0; row < count; row++) if (reached(row)) needed.add(row);
  }
  for (let row = 0; row < count; row++) {
    let end = row;
    while (end < count && !needed.has(end)) end++;
    if (end - row < 2) continue;
    folds.fill(0, row, end);
    folds[row] = end - row;
    row = end - 1;
  }
  return folds;
}

function smallestOf(folds: number[]): number {
  const rows = folds.filter((fold) => fold > 0).length;
  return Math.max(ROW.least, Math.min(ROW.most, ROW.together / Math.max(1, rows)));
}

function scaleOf(flows: Float64Array, heightOf: (row: number, scale: number) => number, height: number): number {
  const most = flows.reduce((top, flow) => Math.max(top, flow), 1e-30);
  const total = (scale: number): number => flows.reduce((sum, _, row) => sum + heightOf(row, scale), 0);
  const room = Math.max(height, total(0) + 240);
  let [low, high] = [0, (LARGEST_STREAM * height) / most];
  if (total(high) <= room) return high;
  for (let step = 0; step < 40; step++) {
    const scale = (low + high) / 2;
    if (total(scale) <= room) low = scale;
    else high = scale;
  }
  return low;
}

/** What every row has for itself of the height that none of them needs. */
function spareOf(folds: number[], heightOf: (row: number) => number, height: number): number {
  const total = folds.reduce((sum, _, row) => sum + heightOf(row), 0);
  const rows = folds.filter((fold) => fold > 0).length;
  return Math.max(0, Math.min(MOST_SPARE, (height - total) / Math.max(1, rows)));
}

function rowsOf(folds: number[], heightOf: (row: number) => number): Row[] {
  const rows: Row[] = [];
  let top = HEADER;
  folds.forEach((fold, row) => {
    if (fold === 0) {
      rows.push(rows[row - 1]!);
      return;
    }
    const height = heightOf(row);
    rows.push({ top, height, folded: fold });
    top += height;
  });
  return rows;
}

/** The edges and stubs, stacked at each node: edges in the order of their other ends, then stubs. */
function stacked(
  flow: Flow,
  totals: Totals,
  { scale, columns, rows }: Pick<Streams, "scale" | "columns" | "rows">,
): Pick<Streams, "bands" | "stubs"> {
  const bands = flow.edges.map((edge): Band => {
    const x: [number, number] = [columns[edge.layer - 1]!, columns[edge.layer]!];
    return { edge, x, y: [0, 0], width: Math.abs(edge.value) * scale };
  });
  const stubs = stubsOf(totals, scale);
  for (const [end, side] of (["out", "into"] as const).entries()) {
    const [here, beyond] = end === 0 ? (["from", "to"] as const) : (["to", "from"] as const);
    const name = (depth: number, row: number): number => depth * rows.length + row;
    const edges = grouped(bands, ({ edge }) => name(edge.layer - 1 + end, edge[here]));
    const others = grouped(
      stubs.filter((stub) => stub.side === side),
      ({ depth, row }) => name(depth, row),
    );
    for (const node of new Set([...edges.keys(), ...others.keys()])) {
      const touching = (edges.get(node) ?? []).sort((a, b) => a.edge[beyond] - b.edge[beyond]);
      const attached = others.get(node) ?? [];
      const total = [...touching, ...attached].reduce((sum, { width }) => sum + width, 0);
      let top = middle(rows[node % rows.length]!) - total / 2;
      const next = (width: number): number => {
        top += width;
        return top - width / 2;
      };
      for (const band of touching) band.y[end] = next(band.width);
      for (const stub of attached) stub.y = next(stub.width);
    }
  }
  return { bands, stubs };
}

export function grouped<Item, Name>(items: Item[], nameOf: (item: Item) => Name): Map<Name, Item[]> {
  const groups = new Map<Name, Item[]>();
  for (const item of items) {
    const group = groups.get(nameOf(item));
    if (group) group.push(item);
    else groups.set(nameOf(item), [item]);
  }
  return groups;
}

function stubsOf({ into, out, bias }: Totals, scale: number): Stub[] {
  const of = (values: Float64Array[], side: Stub["side"], kind: Stub["kind"]): Stub[] =>
    values.flatMap((numbers, depth) =>
      [...numbers].flatMap((value, row) => {
        const width = Math.abs(value) * scale;
        return width < SMALLEST_STUB ? [] : [{ depth, row, side, kind, value, y: 0, width }];
      }),
    );
  return [...of(out, "out", "rest"), ...of(into, "into", "rest"), ...of(bias, "into", "bias")];
}
