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

it("tokens of a long text through which nothing flows are folded", () => {
  const at = streams(flow(100, [{ layer: 1, from: 40, to: 99, value: 1 }]), room);
  expect(at.rows[0]!.folded).toBe(40);
  expect(at.rows[39]).toBe(at.rows[0]);
  expect(at.rows[40]!.folded).toBe(1);
  expect(at.rows[41]!.folded).toBe(58);
  expect(at.rows[99]!.folded).toBe(1);
});
