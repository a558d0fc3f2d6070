import { expect, it } from "vitest";
import { streams } from "../../src/draw/streams";
import type { Flow } from "../../src/model/flow";

function flow(rows: number, edges: Flow["edges"]): Flow {
  const labels = Array.from({ length: rows }, (_, row) => `t${row}`);
  return {
    layers: 1,
    rows: {
      members: labels.map((_, row) => [row]),
      labels,
      texts: labels,
      shown: labels,
      special: labels.map(() => false),
      group: labels.map(() => ""),
      of: labels.map((_, row) => row),
    },
    own: rows,
    edges,
    carried: [1],
    relevance: [new Float64Array(rows).fill(0.1), new Float64Array(rows).fill(0.1)],
    feedForward: [],
    bias: [],
    heads: [],
    rest: {
      into: [new Float64Array(rows), new Float64Array(rows)],
      out: [new Float64Array(rows), new Float64Array(rows)],
    },
  };
}

const room = { width: 800, height: 500, labels: 60, target: 60 };

it("bands are as wide as what flows and lie one upon the other at a node", () => {
  const edges = [
    { layer: 1, from: 0, to: 1, value: 3 },
    { layer: 1, from: 1, to: 1, value: -1 },
  ];
  const at = streams(flow(2, edges), room);
  const [large, small] = at.bands;
  expect(large!.width / small!.width).toBeCloseTo(3);
  expect(small!.y[1] - large!.y[1]).toBeCloseTo((large!.width + small!.width) / 2);
  expect(at.rows[1]!.height).toBeGreaterThanOrEqual(large!.width + small!.width);
});

it("what is left out is stacked below the edges, and folded tokens are put together", () => {
  const made = flow(100, [{ layer: 1, from: 40, to: 99, value: 1 }]);
  made.rest.out[0]!.fill(0.1);
  made.bias = [new Float64Array(100).fill(0.2)];
  const at = streams(made, room);
  const fold = at.stubs.find(({ row, side }) => row === 0 && side === "out")!;
  expect(fold.value).toBeCloseTo(4);
  expect(fold.width / at.bands[0]!.width).toBeCloseTo(4);
  expect(at.relevance[0]![0]).toBeCloseTo(4);
  const end = at.stubs.find(({ row, kind }) => row === 99 && kind === "bias")!;
  expect(end.y - at.bands[0]!.y[1]).toBeCloseTo((end.width + at.bands[0]!.width) / 2);
});

it("tokens of a long text through which nothing flows are folded", () => {
  const at = streams(flow(100, [{ layer: 1, from: 40, to: 99, value: 1 }]), room);
  expect(at.rows[0]!.folded).toBe(40);
  expect(at.rows[39]).toBe(at.rows[0]);
  expect(at.rows[40]!.folded).toBe(1);
  expect(at.rows[41]!.folded).toBe(58);
  expect(at.rows[99]!.folded).toBe(1);
});

it("rows are moved apart where there is height to spare, but not far", () => {
  const made = flow(10, []);
  for (const values of made.relevance) values.fill(0.001).fill(1, 0, 1);
  const [low, high] = [500, 2000].map((height) => streams(made, { ...room, height }).rows);
  expect(low!.at(-1)!.height).toBeGreaterThan(24); // a row needs 18
  expect(high!.at(-1)!.height).toBeLessThan(40);
});
