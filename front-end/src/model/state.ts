/** What is being looked at. All of it is in the URL fragment, and whatever a fragment says is checked before use. */
import type { Analysis } from "./analysis";
import type { Norm } from "./matrix";
import { hasWords } from "./tokens";

export interface State {
  part: "decoder" | "encoder";
  layer: number;
  scope: string;
  /** The scope to subtract, or "" for none. */
  base: string;
  /** 0: all heads together. */
  head: number;
  norm: Norm;
  units: "token" | "word";
  special: boolean;
  /** Index of the selected query token, and of the selected key token (-1: none). */
  query: number;
  key: number;
  /** The name of a view; which ones there are is not known here. */
  view: string;
  colours: "normscope" | "magma" | "viridis" | "cividis" | "greys";
  scale: "linear" | "root";
  range: "map" | "shared";
  order: "value" | "text";
  theme: "auto" | "light" | "dark";
}

const CHOICES: { [name in keyof State]?: readonly string[] } = {
  part: ["decoder", "encoder"],
  norm: ["none", "row", "column"],
  units: ["token", "word"],
  colours: ["normscope", "magma", "viridis", "cividis", "greys"],
  scale: ["linear", "root"],
  range: ["map", "shared"],
  order: ["value", "text"],
  theme: ["auto", "light", "dark"],
};

export function initialState(analysis: Analysis): State {
  const content = analysis.queries.special.indexOf(0);
  return {
    part: "decoder",
    layer: analysis.layers[0] ?? 1,
    scope: analysis.scopeNames.at(-1) ?? "",
    base: "",
    head: 0,
    norm: "row",
    units: "token",
    special: true,
    query: Math.max(0, content),
    key: -1,
    view: "map",
    colours: "normscope",
    scale: "root",
    range: "map",
    order: "value",
    theme: "auto",
  };
}

/** Only what differs from the initial state, as `name=value&...`. */
export function formatState(state: State, initial: State): string {
  const query = new URLSearchParams();
  for (const name of Object.keys(initial) as (keyof State)[]) {
    if (state[name] !== initial[name]) query.set(name, String(state[name]));
  }
  return query.toString();
}

export function parseState(fragment: string, initial: State): State {
  const state: Record<string, unknown> = { ...initial };
  for (const [name, text] of new URLSearchParams(fragment.replace(/^#/u, ""))) {
    if (!Object.hasOwn(initial, name)) continue;
    const before = (initial as unknown as Record<string, unknown>)[name];
    const choices = CHOICES[name as keyof State];
    if (choices && !choices.includes(text)) continue;
    if (typeof before === "boolean") state[name] = text === "true";
    else if (typeof before === "number") state[name] = /^-?\d{1,6}$/u.test(text) ? Number(text) : before;
    else state[name] = text;
  }
  return state as unknown as State;
}

/** The state with everything that an analysis does not have replaced by what it has. */
export function fitState(state: State, analysis: Analysis): State {
  const fitted = { ...state };
  const { layers, scopeNames, queries, keys } = analysis;
  if (!layers.includes(fitted.layer)) fitted.layer = nearest(layers, fitted.layer);
  if (!scopeNames.includes(fitted.scope)) fitted.scope = scopeNames.at(-1) ?? "";
  if (fitted.base !== "" && !scopeNames.includes(fitted.base)) fitted.base = "";
  if (fitted.head !== 0 && !analysis.heads?.numbers.includes(fitted.head)) fitted.head = 0;
  if (fitted.units === "word" && !hasWords(keys)) fitted.units = "token";
  fitted.query = clamp(fitted.query, 0, queries.token.length - 1);
  fitted.key = clamp(fitted.key, -1, keys.token.length - 1);
  return fitted;
}

function nearest(layers: number[], layer: number): number {
  return layers.reduce((best, next) => (Math.abs(next - layer) < Math.abs(best - layer) ? next : best), layers[0] ?? 1);
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), Math.max(low, high));
}
