import { describe, expect, it } from "vitest";
import { Analysis } from "../../src/model/analysis";
import { Rows } from "../../src/model/decode";
import { fitState, formatState, initialState, parseState } from "../../src/model/state";
import { ATTENTION, WEIGHTS } from "../samples";

const tokens = {
  position: [0, 1, 2],
  token: ["[CLS]", "a", "b"],
  special: [1, 0, 0],
  word: [-1, 0, 1],
  wordText: ["[CLS]", "a", "b"],
};
const contents = {
  facts: { model: "m" },
  method: "norms",
  quantity: "norm",
  layers: [2, 4],
  scopes: [WEIGHTS, ATTENTION],
  queries: tokens,
  keys: tokens,
  rollout: null,
  completeness: [1e-7, 2e-7],
  map: new Rows([2, 2, 3, 3], new Float32Array(36).fill(1)),
  mixing: null,
  sourceMixing: null,
  heads: null,
  picture: null,
  encoder: null,
};
const analysis = new Analysis(contents);
const initial = initialState(analysis);

describe("the state", () => {
  it("starts at the whole chain and the first token that is not special", () => {
    expect(initial).toMatchObject({ layer: 2, scope: "Attn", query: 1, norm: "row", own: "auto" });
  });
  it("starts at the last token of a causal model, whose first has nothing to take from", () => {
    const triangle = Float32Array.from({ length: 36 }, (_, at) => (at % 3 > Math.floor(at / 3) % 3 ? Number.NaN : 1));
    const causal = new Analysis({ ...contents, map: new Rows([2, 2, 3, 3], triangle) });
    expect(causal.causal).toBe(true);
    expect(initialState(causal).query).toBe(2);
  });
  it("starts at the layer in which tokens take most from others", () => {
    const values = new Float32Array(36).fill(1);
    // At the last scope the first layer is a diagonal.
    for (let at = 18; at < 27; at++) values[at] = (at - 18) % 4 === 0 ? 1 : 0;
    const telling = new Analysis({ ...contents, map: new Rows([2, 2, 3, 3], values) });
    expect(initialState(telling).layer).toBe(4);
  });
  it("goes into a fragment and comes back", () => {
    const state = { ...initial, layer: 4, scope: "AttnW", special: false, key: 2, units: "word" as const };
    expect(parseState(`#${formatState(state, initial)}`, initial)).toEqual(state);
    expect(formatState(initial, initial)).toBe("");
  });
  it("ignores what a fragment should not say", () => {
    expect(parseState("#norm=evil&layer=1e9&__proto__=1&constructor=x&unknown=2&query=NaN", initial)).toEqual(initial);
  });
  it("is fitted to what an analysis has", () => {
    const odd = { ...initial, layer: 99, scope: "AttnResLn", base: "nothing", head: 3, query: 50, key: 50 };
    expect(fitState(odd, analysis)).toMatchObject({ layer: 4, scope: "Attn", base: "", head: 0, query: 2, key: 2 });
  });
});
