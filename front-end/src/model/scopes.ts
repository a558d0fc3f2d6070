/** Scopes as the payload describes them, and what each adds to the one before it, in words: the steps of the chain. */

export interface Scope {
  name: string;
  /** The components that it covers, by their names ("Attn") and in words ("attention"). */
  components: string[];
  words: string[];
  /** All of it in words: how far along the chain. */
  described: string;
  /** What its cells measure: "weight", "norm", ... */
  quantity: string;
  /** Whether it has separate heads. */
  heads: boolean;
  /** Whether cells may be negative. */
  signed: boolean;
}

export interface Step {
  scope: string;
  /** What happens here: "weights", "+ residual". */
  title: string;
  /** The same in a few letters. */
  short: string;
}

const WEIGHT = "weight";
const ATTENTION = "attention";

const SHORT: Record<string, string> = {
  attention: "attn",
  "cross-attention": "cross",
  residual: "res",
  norm: "LN",
  "feed-forward": "FF",
};

const QUANTITIES: Record<string, string> = {
  [WEIGHT]: "attention weight",
  norm: "norm of the part",
};

export function stepsOf(scopes: readonly Scope[]): Step[] {
  let before: Scope | null = null;
  return scopes.map((scope) => {
    const step = scope.quantity === WEIGHT ? weightsStep(scope) : componentStep(scope, before);
    if (scope.quantity !== WEIGHT) before = scope;
    return step;
  });
}

/** A scope in words. */
export function wordsOf(scopes: readonly Scope[], name: string): string {
  return scopes.find((one) => one.name === name)?.described ?? name;
}

function weightsStep({ name, words }: Scope): Step {
  const [attention = ATTENTION, ...others] = words;
  const crossing = attention !== ATTENTION;
  return {
    scope: name,
    title: [crossing ? "cross weights" : "weights", ...others].join(" + "),
    short: [crossing ? "cW" : "W", ...others.map(abbreviated)].join(" + "),
  };
}

function componentStep(scope: Scope, before: Scope | null): Step {
  const { name, words } = scope;
  const prefix = before?.components ?? [];
  const known = prefix.every((component, at) => scope.components[at] === component);
  const added = known ? words.slice(prefix.length) : words;
  if (before === null && words.length === 1) {
    const [word = ""] = words;
    return { scope: name, title: word === ATTENTION ? "\u00d7 values" : word, short: abbreviated(word) };
  }
  return { scope: name, title: `+ ${added.join(" + ")}`, short: `+ ${added.map(abbreviated).join(" + ")}` };
}

function abbreviated(word: string): string {
  return SHORT[word] ?? word;
}

/** What a cell measures at a scope. */
export function quantityOf({ quantity }: Scope, norm: string): string {
  if (norm === "row") return "share of the query\u2019s row";
  if (norm === "column") return "share of the key\u2019s column";
  return QUANTITIES[quantity] ?? quantity;
}
