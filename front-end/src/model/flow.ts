/** The flow graph of one target: the fewest edges of every layer that carry a share of it, and what a node has to do with them. */
import type { Stack } from "./explanation";
import { type UnitKind, type Units, unitsOf } from "./tokens";

/** From a row before a layer (from 1) to a row after it. */
export interface Edge {
  layer: number;
  from: number;
  to: number;
  value: number;
}

export interface FlowNode {
  depth: number;
  row: number;
}

export interface Flow {
  layers: number;
  /** The tokens or words, those of an encoder after the stack's own. */
  rows: Units;
  /** How many rows are of the stack's own tokens, which have a relevance at every depth. */
  own: number;
  edges: Edge[];
  /** For every layer the share of its flow (by absolute value) that the edges carry. */
  carried: number[];
  /** By depth, then row. Rows of an encoder have what all layers above take from them. */
  relevance: Float64Array[];
  /** By layer (from 0), then row. */
  feedForward: Float64Array[];
  bias: Float64Array[];
  /** By layer, head, then row. */
  heads: Float64Array[][];
  rest: Rest;
}

/** What the edges that are left out add up to, by depth, then row: edges and rest together are the relevance. */
export interface Rest {
  /** Into a node, in addition to its bias. */
  into: Float64Array[];
  out: Float64Array[];
}

/** The most edges that can be drawn and distinguished. */
const MOST_EDGES = 6000;
/** A rest below this part of the largest relevance is what float32 leaves of nothing. */
const ROUNDING = 1e-5;

export function flowOf(stack: Stack, target: number, { share, units }: { share: number; units: UnitKind }): Flow {
  const rows = unitsOf(stack.keys, { kind: units, special: true });
  const own = 1 + Math.max(-1, ...stack.tokens.token.map((_, token) => rows.of[token]!));
  const depths = Array.from({ length: stack.layers + 1 }, (_, depth) => depth);
  const flow: Flow = {
    layers: stack.followed ? stack.layers : 0,
    rows,
    own,
    edges: [],
    carried: [],
    relevance: depths.map((depth) => summed(stack.relevance(target, depth), rows)),
    feedForward: [],
    bias: [],
    heads: [],
    rest: { into: [], out: [] },
  };
  if (!stack.followed) return flow;
  const most = Math.max(1, Math.floor(MOST_EDGES / Math.max(1, stack.layers)));
  for (let layer = 1; layer <= stack.layers; layer++) {
    const { edges, total } = edgesOf(stack, target, layer, rows);
    const { kept, carried } = largest(edges, total, share, most);
    flow.edges.push(...kept);
    flow.carried.push(carried);
    flow.feedForward.push(summed(stack.feedForward(target, layer), rows));
    flow.bias.push(summed(stack.bias(target, layer), rows));
    flow.heads.push(
      Array.from({ length: stack.heads }, (_, head) => summed(stack.head(target, layer, head + 1), rows)),
    );
    stack.taken(target, layer).forEach((value, token) => {
      flow.relevance[layer - 1]![rows.of[stack.tokens.token.length + token]!]! += value;
    });
  }
  return { ...flow, rest: restOf(flow) };
}

function restOf({ layers, own, relevance, bias, edges }: Flow): Rest {
  const out = relevance.map((values, depth) => (depth < layers ? values.slice() : values.map(() => 0)));
  const into = relevance.map((values, depth) =>
    values.map((value, row) => (depth > 0 && row < own ? value - bias[depth - 1]![row]! : 0)),
  );
  for (const { layer, from, to, value } of edges) {
    out[layer - 1]![from]! -= value;
    into[layer]![to]! -= value;
  }
  const most = relevance.flatMap((values) => [...values]).reduce((top, value) => Math.max(top, Math.abs(value)), 0);
  const known = (values: Float64Array): Float64Array =>
    values.map((value) => (Math.abs(value) > ROUNDING * most ? value : 0));
  return { into: into.map(known), out: out.map(known) };
}

function summed(values: Float32Array, rows: Units): Float64Array {
  const sums = new Float64Array(rows.members.length);
  values.forEach((value, token) => {
    sums[rows.of[token]!]! += value;
  });
  return sums;
}

/** All edges of a layer between rows, largest first. */
function edgesOf(stack: Stack, target: number, layer: number, rows: Units): { edges: Edge[]; total: number } {
  const { indices, values, total } = stack.edges(target, layer);
  const keys = stack.keys.token.length;
  const sums = new Map<number, Edge>();
  let before = 0;
  indices.forEach((index, at) => {
    const [to, from] = [rows.of[Math.floor(index / keys)]!, rows.of[index % keys]!];
    const value = values[at]!;
    before += Math.abs(value);
    const name = to * rows.members.length + from;
    const edge = sums.get(name);
    if (edge) edge.value += value;
    else sums.set(name, { layer, from, to, value });
  });
  const edges = [...sums.values()];
  if (rows.members.length === keys) return { edges, total };
  // Edges of one word into another may cancel each other.
  const after = edges.reduce((sum, { value }) => sum + Math.abs(value), 0);
  return { edges: edges.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)), total: total - before + after };
}

/** The fewest edges (of a list with the largest first) that make up a share of the flow, as far as they are there. */
function largest(edges: Edge[], total: number, share: number, most: number): { kept: Edge[]; carried: number } {
  let [sum, count] = [0, 0];
  while (count < Math.min(edges.length, most) && (count === 0 || sum < share * total * (1 - 1e-9))) {
    sum += Math.abs(edges[count]!.value);
    count += 1;
  }
  return { kept: edges.slice(0, count), carried: total > 0 ? Math.min(1, sum / total) : 1 };
}

/**
 * For every edge how much of it has to do with a node: 1 for those that touch it. Beyond, of what enters a node (by absolute
 * value) the same part leaves it, and the other way round.
 */
export function followed(flow: Flow, { depth, row }: FlowNode): Float32Array {
  const parts = new Float32Array(flow.edges.length);
  spread(flow, parts, { depth, row }, true);
  spread(flow, parts, { depth, row }, false);
  return parts;
}

function spread(flow: Flow, parts: Float32Array, start: FlowNode, onward: boolean): void {
  let here = new Float64Array(flow.rows.members.length);
  here[start.row] = 1;
  const end = onward ? flow.layers : 1;
  for (
    let layer = onward ? start.depth + 1 : start.depth;
    onward ? layer <= end : layer >= end;
    layer += onward ? 1 : -1
  ) {
    const [reached, all] = [new Float64Array(here.length), new Float64Array(here.length)];
    flow.edges.forEach((edge, index) => {
      if (edge.layer !== layer) return;
      const [near, far] = onward ? [edge.from, edge.to] : [edge.to, edge.from];
      const size = Math.abs(edge.value);
      parts[index] = Math.max(parts[index]!, here[near]!);
      reached[far]! += size * here[near]!;
      all[far]! += size;
    });
    here = reached.map((size, row) => (all[row]! > 0 ? size / all[row]! : 0));
  }
}

/** The edges into a node and out of it, largest first. */
export function touching(flow: Flow, { depth, row }: FlowNode): { into: Edge[]; out: Edge[] } {
  const bySize = (a: Edge, b: Edge): number => Math.abs(b.value) - Math.abs(a.value);
  return {
    into: flow.edges.filter((edge) => edge.layer === depth && edge.to === row).sort(bySize),
    out: flow.edges.filter((edge) => edge.layer === depth + 1 && edge.from === row).sort(bySize),
  };
}
