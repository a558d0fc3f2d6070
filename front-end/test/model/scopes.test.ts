import { describe, expect, it } from "vitest";
import { quantityOf, stepsOf } from "../../src/model/scopes";
import { ATTENTION, scope, WEIGHTS } from "../samples";

const RESIDUAL = scope("AttnRes", ["Attn", "Res"]);
const NORM = scope("AttnResLn", ["Attn", "Res", "Ln"]);

describe("steps", () => {
  it("name what each scope adds, in words and in a few letters", () => {
    const steps = stepsOf([WEIGHTS, ATTENTION, RESIDUAL, NORM, scope("AttnResLnFf", ["Attn", "Res", "Ln", "Ff"])]);
    expect(steps.map(({ title }) => title)).toEqual([
      "weights",
      "\u00d7 values",
      "+ residual",
      "+ norm",
      "+ feed-forward",
    ]);
    expect(steps.map(({ short }) => short)).toEqual(["W", "attn", "+ res", "+ LN", "+ FF"]);
  });
  it("name several where scopes were left out", () => {
    expect(stepsOf([ATTENTION, NORM])[1]!.title).toBe("+ residual + norm");
  });
  it("tell cross-attention and its weights apart", () => {
    const weights = scope("CrossW", ["Cross"], { quantity: "weight" });
    const crossed = scope("AttnResLnCross", ["Attn", "Res", "Ln", "Cross"]);
    const titles = stepsOf([NORM, weights, crossed]).map(({ title }) => title);
    expect(titles.slice(1)).toEqual(["cross weights", "+ cross-attention"]);
  });
  it("go by the parts of a scope, not by its name", () => {
    const odd = [scope("first", ["Attn"], { quantity: "weight" }), scope("W", ["Attn"]), scope("w2", ["Attn", "Gate"])];
    expect(stepsOf(odd).map(({ title }) => title)).toEqual(["weights", "\u00d7 values", "+ Gate"]);
    expect(stepsOf([scope("AttnResW", ["Attn", "Res"], { quantity: "weight" })])[0]!.title).toBe("weights + residual");
  });
});

describe("what a cell measures", () => {
  it("is what the payload says, or a share", () => {
    expect(quantityOf(WEIGHTS, "none")).toBe("attention weight");
    expect(quantityOf(ATTENTION, "none")).toBe("norm of the part");
    expect(quantityOf(scope("Attn", ["Attn"], { quantity: "projection" }), "none")).toBe("projection");
    expect(quantityOf(WEIGHTS, "row")).toBe("share of the query\u2019s row");
  });
});
