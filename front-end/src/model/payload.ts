/** The payload as Python writes it (`normscope/explorer/payload.py`): labels as they are, numbers as packed blocks. */
import type { AnswerPayload } from "./answer";
import type { Scope } from "./scopes";
import type { State } from "./state";
import type { WindowFacts } from "./window";

/** Codes of 16 bits on a logarithmic scale below the largest of each row (the last axis), or plain float32. */
export type Block = FloatBlock | CodeBlock;

export interface FloatBlock {
  bits: 32;
  shape: number[];
  data: string;
}

export interface CodeBlock {
  bits: 16;
  shape: number[];
  /** All low bytes, then all high bytes. */
  data: string;
  /** For every row the value of code `top`; one code less is a factor of exp(-step). */
  scale: string;
  step: number;
  top: number;
  /** The largest relative error of a share. */
  error: number;
}

export interface TokenTable {
  position: number[];
  token: string[];
  special: number[];
  /** 1 for attention sinks, in explanations whose method knows them. */
  sink?: number[];
  word: number[];
  wordText: string[];
  /** The text that byte-level tokens stand for; left out where tokens are text. */
  text?: string[];
  group?: string[];
  row?: number[];
  column?: number[];
  /** How many tokens each stands for, where blocks of them are put together. */
  count?: number[];
  /** 1 for tokens of the instruction before a text that is embedded. */
  prompt?: number[];
  /** Which text of a pair a token is of, 0 or 1, and -1 of special tokens. */
  segment?: number[];
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

/** How maps of layers are multiplied: the share of the identity at every scope, and whether rows are divided by their sums. */
export interface RolloutRule {
  identity: Record<string, number>;
  normalise: boolean;
}

export interface AnalysisPayload {
  facts: Facts;
  method: string;
  quantity: string;
  layers: number[];
  scopes: Scope[];
  queries: TokenTable;
  keys: TokenTable;
  /** Null where the maps are from the inputs already. */
  rollout: RolloutRule | null;
  map: Block;
  completeness: number[];
  mixing?: Block;
  sourceMixing?: Block;
  heads?: HeadsPayload;
  image?: ImagePayload;
  encoder?: AnalysisPayload;
  /** The same as projections, where the analysis has them in addition to its norms. */
  projections?: AnalysisPayload;
  /** Of a stack that is shown by windows, in blocks or one of them. */
  windows?: WindowFacts;
  /** Of a window: `[scope, layer, query]`, what the queries' own tokens have. Blocks of several tokens are without them. */
  own?: Block;
}

/** One value that is explained, and what of it belongs to no token. */
export interface TargetPayload {
  name: string;
  position: number;
  value: number;
  /** Null where shares are not meant to add up to the value. */
  bias: number | null;
  /** What stays with attention weights, as a whole and by the tokens looked at (the encoder's last), where it is counted. */
  routed?: number;
  lookedAt?: number[];
  /** What to know of how it adds up; mostly nothing. */
  remark?: string;
  /** What came of its strongest edges in the real model, where they were cut. */
  verified?: VerificationPayload;
}

/** An edge that was cut in the model: how the value was to change, and how it did. */
export interface CutEdge {
  layer: number;
  query: number;
  key: number;
  predicted: number;
  observed: number;
}

export interface VerificationPayload {
  edges: CutEdge[];
  /** Predicted and observed without all of them. */
  together: [number, number];
  /** Null for fewer than three edges. */
  correlation: number | null;
}

/** The largest edges `[target, layer, query, key]`, those of every layer in order of size. */
export interface EdgesPayload {
  /** For every target and layer: how many edges follow, and the absolute value of all there are. */
  count: number[];
  total: number[];
  /** `query * keys + key` of every edge (uint32), and its value (float32). */
  place: string;
  value: string;
}

export interface StackPayload {
  tokens: TokenTable;
  keys: TokenTable;
  relevance: Block;
  heads?: Block;
  feedForward?: Block;
  bias?: Block;
  edges?: EdgesPayload;
  /** Of a decoder `[target, layer, source key]`: what every layer takes from the encoder's tokens. */
  taken?: Block;
}

/** What a model may say at one place (-1: of the whole input), likeliest first. */
export interface PredictionPayload {
  position: number;
  /** What the probabilities are of, where several labels may be true at once. */
  of?: string;
  options: OptionPayload[];
}

export interface OptionPayload {
  name: string;
  /** The number of the label, where it can be requested. */
  label?: number;
  probability: number;
}

export interface ExplanationPayload {
  /** How the host knows it; by default its number on the page. */
  id?: string;
  facts: Facts;
  method: string;
  quantity: string;
  /** What a share is, in words. */
  meaning: string;
  /** How far shares and bias are from the value; null where they are not meant to add up. */
  error: number | null;
  /** What to know of the words that were asked about. */
  note: string;
  targets: TargetPayload[];
  predictions: PredictionPayload[];
  stack: StackPayload;
  encoder?: StackPayload;
  image?: ImagePayload;
}

/** One of the two texts of a similarity. `share[k]` is its row (or column) of the table plus `margin[k]`. */
export interface SidePayload {
  text: string;
  prompt: string;
  tokens: TokenTable;
  share: number[];
  /** What every token does with the bias of the other text; null without a table. */
  margin: number[] | null;
  /** With the shares it adds up to the value. */
  bias: number;
  /** Where this side is an image, whose tokens have rows and columns; left out if only its pixels are known. */
  image?: ImagePayload;
}

/** Of late interaction, for every first token: the token of the second text that it matched (-1: none), and how well. */
export interface MatchesPayload {
  token: number[];
  value: number[];
}

/** Why two texts are similar (`normscope/explorer/similarity_payload.py`). */
export interface SimilarityPayload {
  facts: Facts;
  value: number;
  measure: string;
  unit: string;
  error: number;
  first: SidePayload;
  second: SidePayload;
  /** `[first, second]`; null where only the shares of tokens are known. */
  table: Block | null;
  constant: number | null;
  matches: MatchesPayload | null;
}

export interface Payload {
  version: number;
  analyses: AnalysisPayload[];
  explanations: ExplanationPayload[];
  /** Of one pair of texts, or of several in the order in which they were ranked. A page has them alone. */
  similarities?: SimilarityPayload[];
  /** Alone on a page, too. */
  answer?: AnswerPayload;
  /** Of all places of the first text, where they are known. */
  predictions: PredictionPayload[];
  /** How the page opens: fields of the state. */
  start?: Partial<State>;
}
