import { describe, expect, it } from "vitest";
import { formatAnalysisRequest, parseAnalysisRequest, withoutRequest } from "../../src/hosts/requests";
import { Analysis } from "../../src/model/analysis";
import { Rows } from "../../src/model/decode";
import { flowOf } from "../../src/model/flow";
import { canRoll, rolloutOf } from "../../src/model/rollout";
import { ROLLOUT } from "../../src/model/state";
import { pearson, spearman } from "../../src/model/statistics";
import { Targets } from "../../src/model/targets";
import { ATTENTION } from "../samples";

const tokens = { position: [0, 1], token: ["a", "b"], special: [0, 0], word: [0, 1], wordText: ["a", "b"] };
const maps = [
  [3, 1, 1, 1],
  [1, 0, 2, 2],
];
const contents = {
  facts: {},
  method: "norms",
  quantity: "norm",
  layers: [1, 2],
  scopes: [ATTENTION],
  queries: tokens,
  keys: tokens,
  completeness: [0, 0],
  map: new Rows([1, 2, 2, 2], Float32Array.from(maps.flat())),
  mixing: null,
  sourceMixing: null,
  heads: null,
  picture: null,
  encoder: null,
};
const ruled = (identity: number, normalise: boolean) =>
  new Analysis({ ...contents, rollout: { identity: { [ATTENTION.name]: identity }, normalise } });
const analysis = ruled(0, true);
const flowTo = (from: Analysis, query: number) =>
  flowOf(rolloutOf(from, query).stack("decoder"), 0, { share: 1, units: "token" });

describe("a rollout", () => {
  it("is the product of the normalised maps, and conserved at every depth", () => {
    expect(canRoll(analysis)).toBe(true);
    const flow = flowTo(analysis, 1);
    expect([...flow.relevance[2]!]).toEqual([0, 1]);
    expect([...flow.relevance[1]!]).toEqual([0.5, 0.5]);
    expect([...flow.relevance[0]!]).toEqual([0.625, 0.375]);
    for (const layer of [1, 2]) {
      const through = flow.edges.filter((edge) => edge.layer === layer).reduce((sum, { value }) => sum + value, 0);
      expect(through).toBeCloseTo(1);
    }
  });
  it("multiplies maps as they are where the method does, and shows shares of all paths", () => {
    const flow = flowTo(ruled(0, false), 1); // [2, 2] x [[3, 1], [1, 1]] = [8, 4]
    expect([...flow.relevance[0]!]).toEqual([8 / 12, 4 / 12].map(Math.fround));
    expect([...flow.relevance[1]!]).toEqual([8 / 12, 4 / 12].map(Math.fround)); // 2 x (3 + 1) and 2 x (1 + 1) paths
    for (const layer of [1, 2]) {
      const through = flow.edges.filter((edge) => edge.layer === layer).reduce((sum, { value }) => sum + value, 0);
      expect(through).toBeCloseTo(1);
    }
  });
  it("mixes in the identity for a residual that the scope lacks", () => {
    const flow = flowTo(ruled(0.5, true), 1);
    expect([...flow.relevance[1]!]).toEqual([0.25, 0.75]);
    expect([...flow.relevance[0]!]).toEqual([0.25 * 0.875 + 0.75 * 0.25, 0.25 * 0.125 + 0.75 * 0.75]);
  });
  it("is not made of maps that are from the inputs already", () =>
    expect(canRoll(new Analysis({ ...contents, rollout: null }))).toBe(false));
  it("is there where nothing is explained, and goes to the chosen token", () => {
    const targets = new Targets([], analysis, []);
    expect([targets.fitted(5), targets.any]).toEqual([ROLLOUT, true]);
    expect(targets.at({ target: ROLLOUT, query: 1 }).explanation.targets[0]!.name).toBe("b");
    expect(targets.at({ target: ROLLOUT, query: 0 }).explanation.estimate).toContain("estimate");
  });
  it("needs the maps of all layers", () => {
    const some = Object.assign(Object.create(Analysis.prototype) as Analysis, analysis);
    Object.defineProperty(some, "layers", { value: [2] });
    expect(canRoll(some)).toBe(false);
  });
});

describe("an address", () => {
  const asked = { text: "a & b", model: "m", method: "alti", pair: "", reply: "x", heads: true, other: null };
  it("brings back what was asked", () => {
    expect(parseAnalysisRequest(`#${formatAnalysisRequest(asked)}`)).toEqual(asked);
    const two = { ...asked, other: { text: "c", model: "", method: "norms" } };
    expect(parseAnalysisRequest(formatAnalysisRequest(two))).toEqual(two);
    expect(parseAnalysisRequest("#layer=2")).toBeNull();
  });
  it("also says how it is looked at", () =>
    expect(withoutRequest(`#${formatAnalysisRequest(asked)}&layer=2`)).toBe("layer=2"));
});

it("correlations are those of values and of ranks", () => {
  expect(pearson([1, 2, 3], [2, 4, 6])).toBeCloseTo(1);
  expect(spearman([1, 2, 3, 4], [1, 10, 100, 1000])).toBeCloseTo(1);
  expect(spearman([1, 2, 2, 3], [3, 2, 2, 1])).toBeCloseTo(-1);
});
