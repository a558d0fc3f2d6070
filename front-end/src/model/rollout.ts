/**
 * Flow by rollout: the maps of all layers multiplied, for models that predict nothing. An estimate, and labelled so.
 *
 * The payload specifies what is multiplied, so that this is the rollout of the Python side: a path from an input to the state
 * counts as the product of its cells, and an edge as all the paths through it, as a share of all.
 */
import type { Analysis } from "./analysis";
import { Rows } from "./decode";
import { Explanation, type LayerEdges, Stack } from "./explanation";
import type { RolloutRule } from "./payload";
import { unitsOf } from "./tokens";

/** Edges below this part of all that flows are not kept. */
const SMALLEST = 2e-5;

/** Whether maps of all layers are there, from single tokens to the same tokens, and shares have no sign. */
export function canRoll(analysis: Analysis): boolean {
  const { layers, queries, keys, wholeScope } = analysis;
  const all = layers.every((layer, index) => layer === index + 1);
  const same = queries.position.join() === keys.position.join() && !(keys.group ?? []).includes("source");
  const rolled = all && same && !keys.count && layers.length > 0;
  return rolled && analysis.rollout !== null && !analysis.scope(wholeScope)?.signed;
}

/** What flows to the state of a token at the last layer, if every state is made of the states before as its map says. */
export function rolloutOf(analysis: Analysis, query: number): Explanation {
  const { layers, keys, queries, wholeScope } = analysis;
  const count = keys.token.length;
  const relevance = new Float32Array((layers.length + 1) * count);
  relevance[layers.length * count + query] = 1;
  const edges: LayerEdges[] = [];
  const maps = weighted(layers.map((layer) => mixed(analysis.matrix(wholeScope, layer), count, analysis)));
  for (let layer = layers.length; layer >= 1; layer--) {
    const after = relevance.subarray(layer * count, (layer + 1) * count);
    const before = relevance.subarray((layer - 1) * count, layer * count);
    edges.unshift(through(maps[layer - 1]!, after, before));
  }
  const none = (...shape: number[]): Rows =>
    new Rows([1, layers.length, ...shape], new Float32Array(layers.length * count));
  const stack = new Stack(queries, keys, new Rows([1, layers.length + 1, count], relevance), {
    heads: none(0, count),
    feedForward: none(count),
    bias: none(count),
    edges,
    taken: null,
  });
  const name = unitsOf(keys, { kind: "token", special: true }).shown[query] ?? "";
  const target = { name, position: queries.position[query] ?? 0, value: 1, bias: 0 };
  const estimate = `Maps at ${wholeScope} multiplied over the layers: an estimate, not what the model computes.`;
  return new Explanation(
    analysis.facts,
    "rollout",
    "share of the rollout",
    0,
    [target],
    stack,
    null,
    analysis.picture,
    [],
    estimate,
  );
}

/** What is multiplied: the map, its rows divided by their sums if the method does, with the identity for the residual. */
function mixed(map: Float32Array, count: number, { rollout, wholeScope }: Analysis): Float64Array {
  const { identity, normalise } = rollout as RolloutRule;
  const share = identity[wholeScope] ?? 0;
  const result = Float64Array.from(map, (value) => value || 0);
  for (let row = 0; row < count; row++) {
    const cells = result.subarray(row * count, (row + 1) * count);
    const sum = normalise ? cells.reduce((total, value) => total + value, 0) || 1 : 1;
    cells.forEach((value, column) => {
      cells[column] = ((1 - share) * value) / sum + (column === row ? share : 0);
    });
  }
  return result;
}

/** Every map with its columns weighted by all the paths that come to them: the rows then say how the paths divide. */
function weighted(maps: Float64Array[]): Float64Array[] {
  const count = Math.sqrt(maps[0]!.length);
  let paths = new Float64Array(count).fill(1);
  return maps.map((map) => {
    const result = map.map((value, at) => value * paths[at % count]!);
    const sums = paths.map((_, row) => result.subarray(row * count, (row + 1) * count).reduce((a, b) => a + b, 0));
    const most = Math.max(...sums) || 1;
    paths = sums.map((sum) => sum / most);
    return result;
  });
}

/** The edges of one layer; what comes from each token is added to `before`. */
function through(map: Float64Array, after: Float32Array, before: Float32Array): LayerEdges {
  const count = after.length;
  const kept: { index: number; value: number }[] = [];
  after.forEach((part, row) => {
    if (part === 0) return;
    let sum = 0;
    for (let at = row * count; at < (row + 1) * count; at++) sum += map[at]!;
    for (let column = 0; column < count; column++) {
      const value = (part * map[row * count + column]!) / sum;
      if (!(value > 0)) continue;
      before[column]! += value;
      if (value > SMALLEST) kept.push({ index: row * count + column, value });
    }
  });
  kept.sort((a, b) => b.value - a.value);
  return {
    indices: Uint32Array.from(kept, ({ index }) => index),
    values: Float32Array.from(kept, ({ value }) => value),
    total: 1,
  };
}
