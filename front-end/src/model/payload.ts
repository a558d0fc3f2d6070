/** The payload as Python writes it (`normscope/explorer/payload.py`): labels as they are, numbers as packed blocks. */
import type { Scope } from "./scopes";

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
  method: string;
  quantity: string;
  layers: number[];
  scopes: Scope[];
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
