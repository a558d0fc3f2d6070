/** What differs between the entry points: where the state is stored, and which values can be requested. */
import type { ExplanationPayload, VerificationPayload } from "../model/payload";
import type { ExplainRequest } from "../model/request";
import type { PartName, WindowPayload, WindowStart } from "../model/window";

export interface Host {
  readState(): string;
  writeState(fragment: string): void;
  /** Called when the state changes from outside (the address bar, another view of the same widget), until unsubscribed. */
  onState?(listener: (fragment: string) => void): Unsubscribe;
  /** Whether the address bar has the state, so that a link to a view can be shared. */
  linkable?: boolean;
  /** Whether nothing else is on the page, so that keys are ours wherever the focus is. */
  alone?: boolean;
  /** Called with the theme, for what surrounds the explorer. */
  applyTheme?(dark: boolean): void;
  /** Explains another prediction of the text that is shown, where someone can compute it. */
  explain?: Explain;
  /** Cuts the strongest edges of a value of an explanation in the real model, where that is at hand. */
  verify?(explanation: string, target: number): Promise<VerificationPayload>;
  /** A window of long results, where someone can read it. */
  window?(start: WindowStart & { part: PartName }): Promise<WindowPayload>;
  /** Float32 values [query, key] of one map at full precision, where something that has them is still there. */
  exact?(request: ExactRequest): Promise<Float32Array>;
}

export type Explain = (request: ExplainRequest) => Promise<ExplanationPayload>;

export type Unsubscribe = () => void;

/** One map of one of the analyses shown. */
export interface ExactRequest {
  analysis: number;
  encoder: boolean;
  scope: string;
  layer: number;
  /** 0: all heads together. */
  head: number;
}
