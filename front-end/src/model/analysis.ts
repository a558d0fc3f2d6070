/** One decoded analysis: its tokens, layers and scopes, and its maps one at a time. Knows nothing of what is shown. */
import { decodeBlock, inflate, type Rows } from "./decode";
import type { AnalysisPayload, Facts, TokenTable } from "./payload";

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

export class Analysis {
  private readonly exactMaps = new Map<string, Float32Array>();

  constructor(
    readonly facts: Facts,
    readonly layers: number[],
    readonly scopes: string[],
    readonly queries: TokenTable,
    readonly keys: TokenTable,
    readonly completeness: number[],
    private readonly map: Rows,
    private readonly mixing: Rows | null,
    private readonly sourceMixing: Rows | null,
    readonly heads: Heads | null,
    readonly picture: Picture | null,
    readonly encoder: Analysis | null,
  ) {}

  get model(): string {
    return String(this.facts.model ?? "");
  }

  get text(): string {
    return String(this.facts.text ?? "");
  }

  /** Whether values are quantised for display only. */
  get quantised(): boolean {
    return !this.map.exact;
  }

  get worstError(): number {
    return Math.max(...this.completeness);
  }

  /** Whether heads are apart at a scope. */
  hasHeads(scope: string): boolean {
    return this.heads?.scopes.includes(scope) ?? false;
  }

  /** `[query, key]` of one layer and scope; `head` 0 means all heads together. */
  matrix(scope: string, layer: number, head = 0): Float32Array {
    const exact = this.exactMaps.get(`${scope}/${layer}/${head}`);
    if (exact) return exact;
    const queries = this.queries.token.length;
    const layerIndex = this.layers.indexOf(layer);
    if (head > 0 && this.heads && this.hasHeads(scope)) {
      const { scopes, numbers, rows } = this.heads;
      const place = (scopes.indexOf(scope) * this.layers.length + layerIndex) * numbers.length + numbers.indexOf(head);
      return rows.read(place * queries, queries);
    }
    return this.map.read((this.scopes.indexOf(scope) * this.layers.length + layerIndex) * queries, queries);
  }

  setExact(scope: string, layer: number, head: number, values: Float32Array): void {
    this.exactMaps.set(`${scope}/${layer}/${head}`, values);
  }

  isExact(scope: string, layer: number, head: number): boolean {
    return !this.quantised || this.exactMaps.has(`${scope}/${layer}/${head}`);
  }

  /** Mixing ratio of every query; empty where there is none. `source` is the share of the source sentence. */
  ratios(scope: string, layer: number, source = false): Float32Array {
    const rows = source ? this.sourceMixing : this.mixing;
    if (!rows) return new Float32Array(0);
    return rows.read(this.scopes.indexOf(scope) * this.layers.length + this.layers.indexOf(layer), 1);
  }
}

export async function decodeAnalysis(payload: AnalysisPayload): Promise<Analysis> {
  const picture = payload.image
    ? { width: payload.image.width, height: payload.image.height, rgb: await inflate(payload.image.data) }
    : null;
  const heads = payload.heads
    ? { scopes: payload.heads.scopes, numbers: payload.heads.numbers, rows: await decodeBlock(payload.heads.map) }
    : null;
  return new Analysis(
    payload.facts,
    payload.layers,
    payload.scopes,
    payload.queries,
    payload.keys,
    payload.completeness,
    await decodeBlock(payload.map),
    payload.mixing ? await decodeBlock(payload.mixing) : null,
    payload.sourceMixing ? await decodeBlock(payload.sourceMixing) : null,
    heads,
    picture,
    payload.encoder ? await decodeAnalysis(payload.encoder) : null,
  );
}
