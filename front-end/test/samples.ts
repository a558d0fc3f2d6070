/** Scopes and similarities as the payload describes them, for tests that need no analysis. */
import type { SidePayload } from "../src/model/payload";
import type { Scope } from "../src/model/scopes";
import type { Similarity } from "../src/model/similarity";

const WORDS: Record<string, string> = {
  Attn: "attention",
  Cross: "cross-attention",
  Res: "residual",
  Ln: "norm",
  Ff: "feed-forward",
};

export function scope(name: string, components: string[], parts: Partial<Scope> = {}): Scope {
  const words = components.map((component) => WORDS[component] ?? component);
  return {
    name,
    components,
    words,
    described: words.join(" + "),
    quantity: "norm",
    heads: false,
    signed: false,
    ...parts,
  };
}

export const WEIGHTS = scope("AttnW", ["Attn"], { quantity: "weight", heads: true });
export const ATTENTION = scope("Attn", ["Attn"], { heads: true });

/** One text of a similarity: its tokens (special ones in brackets, `##` continues a word), and what they do. */
export function side(tokens: string[], share: number[], margin: number[]): SidePayload {
  let words = -1;
  const word = tokens.map((token) => {
    if (token.startsWith("[")) return -1;
    if (!token.startsWith("##")) words++;
    return words;
  });
  const text = (of: number): string =>
    tokens
      .filter((_, index) => word[index] === of)
      .map((token) => token.replace("##", ""))
      .join("");
  return {
    text: tokens.join(" "),
    prompt: "",
    tokens: {
      position: tokens.map((_, index) => index),
      token: tokens,
      special: tokens.map((token) => (token.startsWith("[") ? 1 : 0)),
      word,
      wordText: tokens.map((token, index) => (word[index] === -1 ? token : text(word[index]!))),
    },
    share,
    margin,
    bias: 0.1,
  };
}

/** "[CLS] guitar ##ist" and "music [SEP]": cells, margins and constant add up to 0.5. */
export function guitarist(): Similarity {
  return {
    facts: { model: "tiny", pooling: "mean" },
    value: 0.5,
    measure: "cosine",
    unit: "token",
    error: 1e-8,
    sides: {
      first: side(["[CLS]", "guitar", "##ist"], [0.05, 0.35, 0.15], [0, -0.05, 0.05]),
      second: side(["music", "[SEP]"], [0.45, 0.05], [-0.05, 0]),
    },
    pictures: { first: null, second: null },
    table: Float32Array.from([0.05, 0, 0.375, 0.025, 0.125, -0.025]),
    constant: 0,
    matches: null,
  };
}
