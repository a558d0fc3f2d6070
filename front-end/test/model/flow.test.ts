import { describe, expect, it } from "vitest";
import { Rows } from "../../src/model/decode";
import { type LayerEdges, Stack } from "../../src/model/explanation";
import { flowOf, followed, touching } from "../../src/model/flow";

const table = {
  position: [0, 1, 2],
  token: ["a", "b", "##c"],
  special: [0, 0, 0],
  word: [0, 1, 1],
  wordText: ["a", "bc", "bc"],
};

/** Edges from a matrix [query][key], largest first. */
function edges(matrix: number[][]): LayerEdges {
  const all = matrix
    .flatMap((row, query) => row.map((value, key) => ({ place: query * row.length + key, value })))
    .filter(({ value }) => value !== 0)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return {
    indices: Uint32Array.from(all, ({ place }) => place),
    values: Float32Array.from(all, ({ value }) => value),
    total: all.reduce((sum, { value }) => sum + Math.abs(value), 0),
  };
}

const first = [
  [4, 0, 0],
  [1, 2, 0],
  [0, -3, 1],
];
const second = [
  [0, 0, 0],
  [0, 0, 0],
  [4, 3, -2],
];
const stack = new Stack(table, table, new Rows([1, 3, 3], Float32Array.of(5, -1, 1, 4, 3, -2, 0, 0, 5)), {
  heads: new Rows([1, 2, 1, 3], new Float32Array(6)),
  feedForward: new Rows([1, 2, 3], new Float32Array(6)),
  bias: new Rows([1, 2, 3], new Float32Array(6)),
  edges: [edges(first), edges(second)],
  taken: null,
});

describe("a flow", () => {
  it("has the fewest edges that carry the share in every layer", () => {
    const flow = flowOf(stack, 0, { share: 0.6, units: "token" });
    expect(flow.edges.map(({ layer, value }) => [layer, value])).toEqual([
      [1, 4],
      [1, -3],
      [2, 4],
      [2, 3],
    ]);
    expect(flow.carried[0]).toBeCloseTo(7 / 11);
    expect(flowOf(stack, 0, { share: 1, units: "token" }).edges).toHaveLength(8);
  });
  it("is conserved: what leaves a node and what enters it is its relevance", () => {
    const flow = flowOf(stack, 0, { share: 1, units: "token" });
    for (const [depth, row] of [0, 1, 2].flatMap((at) => [0, 1, 2].map((one) => [at, one] as const))) {
      const { into, out } = touching(flow, { depth, row });
      const sum = (list: { value: number }[]): number => list.reduce((total, { value }) => total + value, 0);
      if (depth > 0) expect(sum(into)).toBe(flow.relevance[depth]![row]);
      if (depth < 2) expect(sum(out)).toBe(flow.relevance[depth]![row]);
    }
  });
  it("has a rest that makes up for the edges left out, at every node", () => {
    const flow = flowOf(stack, 0, { share: 0.6, units: "token" });
    expect([...flow.rest.out[0]!]).toEqual([1, 2, 1]);
    expect([...flow.rest.into[1]!]).toEqual([0, 3, 1]);
    expect([...flow.rest.into[2]!]).toEqual([0, 0, -2]);
    const whole = flowOf(stack, 0, { share: 1, units: "token" });
    expect([...whole.rest.out, ...whole.rest.into].every((values) => values.every((value) => value === 0))).toBe(true);
  });
  it("of words is summed, and the sums stay what they are", () => {
    const flow = flowOf(stack, 0, { share: 1, units: "word" });
    expect(flow.rows.labels).toEqual(["a", "bc"]);
    expect([...flow.relevance[1]!]).toEqual([4, 1]);
    // 2 - 3 + 1 cancel: nothing flows from this word to itself in the first layer.
    expect(flow.edges.filter(({ layer }) => layer === 1).map(({ value }) => value)).toEqual([4, 1]);
  });
  it("is followed from a node to both sides", () => {
    const flow = flowOf(stack, 0, { share: 1, units: "token" });
    const parts = followed(flow, { depth: 1, row: 1 });
    const of = (layer: number, from: number, to: number): number =>
      parts[flow.edges.findIndex((edge) => edge.layer === layer && edge.from === from && edge.to === to)]!;
    expect([of(1, 0, 1), of(1, 1, 1), of(2, 1, 2)]).toEqual([1, 1, 1]);
    expect([of(1, 0, 0), of(2, 0, 2)]).toEqual([0, 0]);
  });
});
