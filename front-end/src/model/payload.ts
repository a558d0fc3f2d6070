/** The payload as Python writes it (`normscope/explorer/payload.py`): labels as they are, numbers as packed blocks. */

export interface Block {
  bits: 8 | 16 | 32;
  shape: number[];
  data: string;
  scale?: string;
}

export interface TokenTable {
  position: number[];
  token: string[];
  special: number[];
  word: number[];
  wordText: string[];
  group?: string[];
  row?: number[];
  column?: number[];
}

export interface ImagePayload {
  height: number;
  width: number;
  data: string;
}

export interface HeadsPayload {
  scopes: string[];
  numbers: number[];
  map: Block;
}

export type Facts = Record<string, string | number>;

export interface AnalysisPayload {
  facts: Facts;
  layers: number[];
  scopes: string[];
  queries: TokenTable;
  keys: TokenTable;
  map: Block;
  completeness: number[];
  mixing?: Block;
  sourceMixing?: Block;
  heads?: HeadsPayload;
  image?: ImagePayload;
  encoder?: AnalysisPayload;
}

export interface Payload {
  version: number;
  analyses: AnalysisPayload[];
}

/** What differs between the doors: where the state lives, and whether exact values can still be asked for. */
export interface Host {
  readState(): string;
  writeState(fragment: string): void;
  /** Called when the state changes from outside (the address bar, another view of the same widget). */
  onState?(listener: (fragment: string) => void): void;
  /** Whether the address bar has the state, so that a link to a view can be shared. */
  linkable?: boolean;
  /** Told whether the theme is dark, for what is around the explorer. */
  dress?(dark: boolean): void;
  /** Float32 values [query, key] of one map at full precision, where something that has them is still there. */
  exact?(analysis: number, encoder: boolean, scope: string, layer: number, head: number): Promise<Float32Array>;
}
