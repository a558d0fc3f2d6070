/** The state of the page. All of it is in the URL fragment, whose values are checked before use. */
import type { Analysis } from "./analysis";
import type { Explanation } from "./explanation";
import { flowOf } from "./flow";
import type { Norm } from "./matrix";
import { kindsOf, type UnitKind } from "./tokens";

export interface State {
  part: "decoder" | "encoder";
  /** What cells measure, where an analysis has both. */
  measure: "norm" | "projection";
  layer: number;
  scope: string;
  /** The scope to subtract, or "" for none. */
  base: string;
  /** 0: all heads together. */
  head: number;
  norm: Norm;
  units: UnitKind;
  special: boolean;
  /** Cells of a query's own token: as they are, grey, or left out and the rest normalised. "auto": out after a residual. */
  own: "auto" | "shown" | "grey" | "out";
  /** Index of the selected query token, and of the selected key token (-1: none). */
  query: number;
  key: number;
  /** The name of a view; which ones there are is not known here. */
  view: string;
  colours: "normscope" | "magma" | "viridis" | "cividis" | "greys";
  /** "auto": the root, or logarithmic where values are of very different sizes. */
  scale: "auto" | "linear" | "root" | "log" | "quantile";
  range: "map" | "shared";
  order: "value" | "text";
  theme: "auto" | "light" | "dark";
  /** Which of the values that are explained, how much of the flow is drawn (percent), and the node that is followed (-1: none). */
  target: number;
  /** The prediction requested in the page (`formatRequest`); "" where what is explained came with it. */
  explain: string;
  share: number;
  depth: number;
  token: number;
}

/** The values that fields with a few of them may have. */
export type Choices<Fields> = { [name in keyof Fields]?: readonly string[] };

const CHOICES: Choices<State> = {
  part: ["decoder", "encoder"],
  measure: ["norm", "projection"],
  norm: ["none", "row", "column"],
  units: ["token", "word", "sentence", "block"],
  own: ["auto", "shown", "grey", "out"],
  colours: ["normscope", "magma", "viridis", "cividis", "greys"],
  scale: ["auto", "linear", "root", "log", "quantile"],
  range: ["map", "shared"],
  order: ["value", "text"],
  theme: ["auto", "light", "dark"],
};

/** The name of the view of explanations. */
export const FLOW = "flow";

/** As a target: the rollout of the maps to the chosen token. The values of explanations are from 0. */
export const ROLLOUT = -1;

/** How much of the flow is drawn at first (percent): the most that can be read, edge by edge. */
const SHARES = [90, 80, 70, 60, 50, 40, 30];
/** Edges between different tokens, on average over the layers: more cannot be told apart. */
const MOST_READABLE = 6;

function firstShare(explanation: Explanation | null): number {
  const stack = explanation?.stack("decoder");
  if (!stack?.followed) return SHARES[0]!;
  const isReadable = (share: number): boolean => {
    const { edges } = flowOf(stack, 0, { share: share / 100, units: "token" });
    return edges.filter(({ from, to }) => from !== to).length <= MOST_READABLE * stack.layers;
  };
  return SHARES.find(isReadable) ?? SHARES.at(-1)!;
}

export function initialState(analysis: Analysis | null, explanation: Explanation | null = null): State {
  const layer = analysis ? tellingLayer(analysis) : 1;
  return {
    part: "decoder",
    measure: "norm",
    layer,
    scope: analysis?.wholeScope ?? "",
    base: "",
    head: 0,
    norm: "row",
    units: "token",
    special: true,
    own: "auto",
    query: analysis ? tellingQuery(analysis, layer) : 0,
    key: -1,
    // A causal model is asked what it says next.
    view: analysis && !(explanation && analysis.causal) ? "map" : FLOW,
    colours: "normscope",
    scale: "auto",
    range: "map",
    order: "value",
    theme: "auto",
    target: explanation ? 0 : ROLLOUT,
    explain: "",
    share: firstShare(explanation),
    depth: -1,
    token: -1,
  };
}

/** Shorter words are mostly those of grammar, whose rows tell little. */
const SHORTEST_TELLING = 4;

/**
 * Of a causal model the last token, which says what comes next. Otherwise the longer word that takes most from other words;
 * the first token that is not special where there is none, or where the text is long.
 */
function tellingQuery(analysis: Analysis, layer: number): number {
  const { queries, keys } = analysis;
  const first = Math.max(0, queries.special.indexOf(0));
  if (analysis.causal) return Math.max(0, queries.special.lastIndexOf(0));
  if (keys.token.length > MOST_LOOKED_THROUGH || queries.row?.some((row) => row >= 0)) return first;
  const isWord = (text: string): boolean => (text.match(/\p{L}/gu) ?? []).length >= SHORTEST_TELLING;
  const taken = takenByRow(analysis, layer, (key) => isWord(keys.token[key]!));
  const words = [...taken.keys()].filter((row) => queries.special[row] !== 1 && isWord(queries.token[row]!));
  const best = Math.max(...words.map((row) => taken[row]!));
  return words.find((row) => taken[row] === best) ?? first;
}

/** Of every row of the whole layer's map the part that comes from some other tokens. */
function takenByRow(analysis: Analysis, layer: number, counts: (key: number) => boolean): number[] {
  const { queries, keys } = analysis;
  const values = analysis.matrix(analysis.wholeScope, layer);
  return queries.position.map((position, row) => {
    let [sum, taken] = [0, 0];
    keys.position.forEach((key, column) => {
      const value = Math.abs(values[row * keys.token.length + column]!) || 0;
      sum += value;
      if (key !== position && counts(column)) taken += value;
    });
    return sum > 0 ? taken / sum : 0;
  });
}

/** Texts up to this length are looked through for a layer to begin with. */
const MOST_LOOKED_THROUGH = 160;

/** The layer in which tokens take most from other tokens that are not special: there is most to see. */
function tellingLayer(analysis: Analysis): number {
  const { layers, keys } = analysis;
  if (keys.token.length > MOST_LOOKED_THROUGH) return layers[Math.floor(layers.length / 2)] ?? 1;
  const content = keys.token.map((_, token) => keys.special[token] !== 1 && keys.position[token] !== 0);
  const others = layers.map((layer) =>
    takenByRow(analysis, layer, (key) => content[key]!).reduce((total, taken) => total + taken, 0),
  );
  return layers[others.indexOf(Math.max(...others))] ?? layers[0] ?? 1;
}

/** Only what differs from the initial state, as `name=value&...`. */
export function formatState<Fields extends object>(state: Fields, initial: Fields): string {
  const query = new URLSearchParams();
  for (const name of Object.keys(initial) as (keyof Fields & string)[]) {
    if (state[name] !== initial[name]) query.set(name, String(state[name]));
  }
  return query.toString();
}

export function parseState(fragment: string, initial: State): State {
  return parseFields(fragment, initial, CHOICES);
}

/** The fields that a fragment has, where their values are possible. */
export function parseFields<Fields extends object>(fragment: string, initial: Fields, known: Choices<Fields>): Fields {
  const state = { ...initial } as Record<string, unknown>;
  for (const [name, text] of new URLSearchParams(fragment.replace(/^#/u, ""))) {
    if (!Object.hasOwn(initial, name)) continue;
    const before = (initial as unknown as Record<string, unknown>)[name];
    const choices = known[name as keyof Fields];
    if (choices && !choices.includes(text)) continue;
    if (typeof before === "boolean") state[name] = text === "true";
    else if (typeof before === "number") state[name] = /^-?\d{1,6}$/u.test(text) ? Number(text) : before;
    else state[name] = text;
  }
  return state as unknown as Fields;
}

/** The state with everything that an analysis does not have replaced by what it has. */
export function fitState(state: State, analysis: Analysis): State {
  const fitted = { ...state };
  const { layers, scopeNames, queries, keys } = analysis;
  if (!layers.includes(fitted.layer)) fitted.layer = nearest(layers, fitted.layer);
  if (!scopeNames.includes(fitted.scope)) fitted.scope = analysis.wholeScope;
  if (fitted.base !== "" && !scopeNames.includes(fitted.base)) fitted.base = "";
  if (fitted.head !== 0 && !analysis.heads?.numbers.includes(fitted.head)) fitted.head = 0;
  if (!kindsOf(keys).includes(fitted.units)) fitted.units = "token";
  fitted.query = clamp(fitted.query, 0, queries.token.length - 1);
  fitted.key = clamp(fitted.key, -1, keys.token.length - 1);
  return fitted;
}

/** The same for an explanation and one of its targets. */
export function fitFlow(state: State, explanation: Explanation): State {
  const { layers, keys } = explanation.stack(state.part);
  const followed = state.depth >= 0 && state.depth <= layers && state.token >= 0 && state.token < keys.token.length;
  return {
    ...state,
    share: clamp(state.share, 1, 100),
    depth: followed ? state.depth : -1,
    token: followed ? state.token : -1,
  };
}

function nearest(layers: number[], layer: number): number {
  return layers.reduce((best, next) => (Math.abs(next - layer) < Math.abs(best - layer) ? next : best), layers[0] ?? 1);
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), Math.max(low, high));
}
