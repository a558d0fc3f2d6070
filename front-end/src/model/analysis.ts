/** One decoded analysis: its tokens, layers and scopes, and its maps one at a time. Knows nothing of what is shown. */
import { decodeBlock, inflate, type Rows } from "./decode";
import type { AnalysisPayload, Facts, ImagePayload, RolloutRule, TokenTable } from "./payload";
import type { Scope } from "./scopes";

export interface Picture {
  width: number;
  height: number;
  rgb: Uint8Array;
}

export interface Heads {
  scopes: string[];
  numbers: number[];
  rows: Rows;
}

export interface Contents {
  facts: Facts;
  method: string;
  quantity: string;
  layers: number[];
  scopes: Scope[];
  queries: TokenTable;
  keys: TokenTable;
  rollout: RolloutRule | null;
  completeness: number[];
  map: Rows;
  mixing: Rows | null;
  sourceMixing: Rows | null;
  heads: Heads | null;
  picture: Picture | null;
  encoder: Analysis | null;
  projections?: Analysis | null;
  owns?: Rows | null;
}

export class Analysis {
  readonly scopeNames: string[];
  private readonly exactMaps = new Map<string, Float32Array>();

  constructor(private readonly contents: Contents) {
    this.scopeNames = contents.scopes.map(({ name }) => name);
  }

  get facts(): Facts {
    return this.contents.facts;
  }

  get model(): string {
    return String(this.facts.model ?? "");
  }

  get text(): string {
    return String(this.facts.text ?? "");
  }

  /** How the values came about, such as "norms", and what they measure, such as "norm". */
  get method(): string {
    return this.contents.method;
  }

  get quantity(): string {
    return this.contents.quantity;
  }

  get layers(): number[] {
    return this.contents.layers;
  }

  get scopes(): Scope[] {
    return this.contents.scopes;
  }

  /** How the maps of layers are multiplied, if they are. */
  get rollout(): RolloutRule | null {
    return this.contents.rollout;
  }

  get queries(): TokenTable {
    return this.contents.queries;
  }

  get keys(): TokenTable {
    return this.contents.keys;
  }

  get completeness(): number[] {
    return this.contents.completeness;
  }

  get heads(): Heads | null {
    return this.contents.heads;
  }

  get picture(): Picture | null {
    return this.contents.picture;
  }

  get encoder(): Analysis | null {
    return this.contents.encoder;
  }

  /** The same states measured by projections, where that was done. */
  get projections(): Analysis | null {
    return this.contents.projections ?? null;
  }

  /** Whether values are quantised for display only. */
  get quantised(): boolean {
    return !this.contents.map.exact;
  }

  /** How far a share that is shown may be from the one analysed, as a part of itself. */
  get precision(): number {
    return Math.max(this.contents.map.error, this.contents.heads?.rows.error ?? 0);
  }

  get worstError(): number {
    return Math.max(...this.completeness);
  }

  scope(name: string): Scope | undefined {
    return this.scopes[this.scopeNames.indexOf(name)];
  }

  /** Whether a scope has separate heads. */
  hasHeads(name: string): boolean {
    return this.scope(name)?.heads ?? false;
  }

  /** Whether a scope covers a residual connection, through which a token mostly is itself. */
  hasResidual(name: string): boolean {
    return this.scope(name)?.words.includes("residual") ?? false;
  }

  /** The scope of the whole block: the last of those that cover most. */
  get wholeScope(): string {
    const sizes = this.scopes.map(({ components }) => components.length);
    return this.scopeNames[sizes.lastIndexOf(Math.max(...sizes))] ?? "";
  }

  /** Whether no query has keys after it. */
  get causal(): boolean {
    const { queries, keys } = this;
    const [scope] = this.scopeNames;
    const [layer] = this.layers;
    if (scope === undefined || layer === undefined || keys.token.length < 2) return false;
    const values = this.matrix(scope, layer);
    const later = (row: number, column: number): boolean =>
      keys.group?.[column] !== "source" && keys.position[column]! > queries.position[row]!;
    return [...values.keys()].every((at) => {
      const [row, column] = [Math.floor(at / keys.token.length), at % keys.token.length];
      return !later(row, column) || Number.isNaN(values[at]!) || values[at] === 0;
    });
  }

  /** `[query, key]` of one layer and scope; `head` 0 means all heads together. */
  matrix(scope: string, layer: number, head = 0): Float32Array {
    const exact = this.exactMaps.get(`${scope}/${layer}/${head}`);
    if (exact) return exact;
    const queries = this.queries.token.length;
    const layerIndex = this.layers.indexOf(layer);
    if (head > 0 && this.heads && this.hasHeads(scope)) {
      const { scopes, numbers, rows } = this.heads;
      const row = (scopes.indexOf(scope) * this.layers.length + layerIndex) * numbers.length + numbers.indexOf(head);
      return rows.read(row * queries, queries);
    }
    const row = this.scopeNames.indexOf(scope) * this.layers.length + layerIndex;
    return this.contents.map.read(row * queries, queries);
  }

  setExact(scope: string, layer: number, head: number, values: Float32Array): void {
    this.exactMaps.set(`${scope}/${layer}/${head}`, values);
  }

  isExact(scope: string, layer: number, head: number): boolean {
    return !this.quantised || this.exactMaps.has(`${scope}/${layer}/${head}`);
  }

  /** What the own token of every query has, also where that is not among the keys but in a block of them; else null. */
  owns(scope: string, layer: number): Float32Array | null {
    const row = this.scopeNames.indexOf(scope) * this.layers.length + this.layers.indexOf(layer);
    return this.contents.owns?.read(row, 1) ?? null;
  }

  /** Mixing ratio of every query; empty where there is none. `source` is the share of the source sentence. */
  ratios(scope: string, layer: number, source = false): Float32Array {
    const rows = source ? this.contents.sourceMixing : this.contents.mixing;
    if (!rows) return new Float32Array(0);
    return rows.read(this.scopeNames.indexOf(scope) * this.layers.length + this.layers.indexOf(layer), 1);
  }
}

export async function decodeAnalysis(payload: AnalysisPayload): Promise<Analysis> {
  const { image, heads, mixing, sourceMixing, encoder, projections, own } = payload;
  return new Analysis({
    ...payload,
    map: await decodeBlock(payload.map),
    mixing: mixing ? await decodeBlock(mixing) : null,
    sourceMixing: sourceMixing ? await decodeBlock(sourceMixing) : null,
    heads: heads ? { scopes: heads.scopes, numbers: heads.numbers, rows: await decodeBlock(heads.map) } : null,
    picture: image ? await pictureOf(image) : null,
    encoder: encoder ? await decodeAnalysis(encoder) : null,
    projections: projections ? await decodeAnalysis(projections) : null,
    owns: own ? await decodeBlock(own) : null,
  });
}

export async function pictureOf({ width, height, data }: ImagePayload): Promise<Picture> {
  return { width, height, rgb: await inflate(data) };
}
