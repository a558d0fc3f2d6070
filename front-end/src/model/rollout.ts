/** Flow by rollout: rows of the maps of all layers multiplied, for models that predict nothing. An estimate, and labelled so. */
import type { Analysis } from "./analysis";
import { Rows } from "./decode";
import { Explanation, type LayerEdges, Stack } from "./explanation";
import { unitsOf } from "./tokens";

/** Edges below this part of all that flows are not kept. */
const SMALLEST = 2e-5;

/** Whether maps of all layers are there, from single tokens to the same tokens, and shares have no sign. */
export function canRoll(analysis: Analysis): boolean {
  const { layers, queries, keys, wholeScope } = analysis;
  const all = layers.every((layer, index) => layer === index + 1);
  const same = queries.position.join() === keys.position.join() && !(keys.group ?? []).includes("source");
  return all && same && !keys.count && layers.length > 0 && !analysis.scope(wholeScope)?.signed;
}

/** What flows to the state of a token at the last layer, if every state is made of the states before as its map says. */
export function rolloutOf(analysis: Analysis, query: number): Explanation {
  const { layers, keys, queries, wholeScope } = analysis;
  const count = keys.token.length;
  const relevance = new Float32Array((layers.length + 1) * count);
  relevance[layers.length * count + query] = 1;
  const edges: LayerEdges[] = [];
  for (let layer = layers.length; layer >= 1; layer--) {
    const after = relevance.subarray(layer * count, (layer + 1) * count);
    const before = relevance.subarray((layer - 1) * count, layer * count);
    edges.unshift(through(analysis.matrix(wholeScope, layer), after, before));
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

/** The edges of one layer; what comes from each token is added to `before`. */
function through(map: Float32Array, after: Float32Array, before: Float32Array): LayerEdges {
  const count = after.length;
  const kept: { place: number; value: number }[] = [];
  after.forEach((part, row) => {
    if (part === 0) return;
    let sum = 0;
    for (let at = row * count; at < (row + 1) * count; at++) sum += map[at]! || 0;
    for (let column = 0; column < count; column++) {
      const value = (part * (map[row * count + column]! || 0)) / sum;
      if (!(value > 0)) continue;
      before[column]! += value;
      if (value > SMALLEST) kept.push({ place: row * count + column, value });
    }
  });
  kept.sort((a, b) => b.value - a.value);
  return {
    places: Uint32Array.from(kept, ({ place }) => place),
    values: Float32Array.from(kept, ({ value }) => value),
    total: 1,
  };
}
