/** Scopes as the payload describes them, for tests that need no analysis. */
import type { Scope } from "../src/model/scopes";

const WORDS: Record<string, string> = {
  Attn: "attention",
  Cross: "cross-attention",
  Res: "residual",
  Ln: "norm",
  Ff: "feed-forward",
};

export function scope(name: string, components: string[], parts: Partial<Scope> = {}): Scope {
  const words = components.map((component) => WORDS[component] ?? component);
  return { name, components, words, quantity: "norm", heads: false, signed: false, ...parts };
}

export const WEIGHTS = scope("AttnW", ["Attn"], { quantity: "weight", heads: true });
export const ATTENTION = scope("Attn", ["Attn"], { heads: true });
