/** A request to the web app, and its form in the address, so that it survives reloading and can be shared. */

/** One analysis. An image cannot be in an address. */
export interface AnalysisInput {
  text: string;
  model: string;
  method: string;
}

export interface AnalysisRequest extends AnalysisInput {
  /** A second text of the same input, for models that read pairs; and what the decoder of an encoder-decoder reads. */
  pair: string;
  reply: string;
  heads: boolean;
  /** A second analysis to compare with. */
  other: AnalysisInput | null;
}

const NORMS = "norms";

export function formatAnalysisRequest({ text, model, method, pair, reply, heads, other }: AnalysisRequest): string {
  const query = new URLSearchParams();
  const set = (name: string, value: string, usual = ""): void => {
    if (value !== usual) query.set(name, value);
  };
  query.set("text", text);
  set("model", model);
  set("method", method, NORMS);
  set("pair", pair);
  set("decoder_text", reply);
  set("heads", heads ? "true" : "");
  if (other) {
    query.set("text2", other.text);
    set("model2", other.model);
    set("method2", other.method, NORMS);
  }
  return query.toString();
}

/** The request of a fragment; null where it has no text. */
export function parseAnalysisRequest(fragment: string): AnalysisRequest | null {
  const query = new URLSearchParams(fragment.replace(/^#/u, ""));
  const text = query.get("text");
  if (text === null) return null;
  const of = (name: string): string => query.get(name) ?? "";
  const second = query.get("text2");
  return {
    text,
    model: of("model"),
    method: of("method") || NORMS,
    pair: of("pair"),
    reply: of("decoder_text") || of("reply"), // links of version 0.2 say reply
    heads: of("heads") === "true",
    other: second === null ? null : { text: second, model: of("model2"), method: of("method2") || NORMS },
  };
}

/** Two texts to compare. */
export interface SimilarityRequest {
  first: string;
  second: string;
  model: string;
}

export function formatSimilarityRequest({ first, second, model }: SimilarityRequest): string {
  return new URLSearchParams({ similar: first, to: second, model }).toString();
}

/** The request of a fragment; null where it has no texts to compare. */
export function parseSimilarityRequest(fragment: string): SimilarityRequest | null {
  const query = new URLSearchParams(fragment.replace(/^#/u, ""));
  const [first, second] = [query.get("similar"), query.get("to")];
  return first === null || second === null ? null : { first, second, model: query.get("model") ?? "" };
}

/** A question about a context, and the answer, if the model is not to answer itself. */
export interface AnswerRequest {
  context: string;
  question: string;
  given: string;
  model: string;
}

export function formatAnswerRequest({ context, question, given, model }: AnswerRequest): string {
  return new URLSearchParams({ context, question, ...(given && { given }), model }).toString();
}

/** The request of a fragment; null where it has no question about a context. */
export function parseAnswerRequest(fragment: string): AnswerRequest | null {
  const query = new URLSearchParams(fragment.replace(/^#/u, ""));
  const [context, question] = [query.get("context"), query.get("question")];
  if (context === null || question === null) return null;
  return { context, question, given: query.get("given") ?? "", model: query.get("model") ?? "" };
}

const NAMES = new Set([
  "context",
  "question",
  "given",
  "similar",
  "to",
  "text",
  "model",
  "method",
  "pair",
  "decoder_text",
  "reply",
  "heads",
  "text2",
  "model2",
  "method2",
]);

/** A fragment without its request: the state of the view. */
export function withoutRequest(fragment: string): string {
  const query = new URLSearchParams(fragment.replace(/^#/u, ""));
  for (const name of NAMES) query.delete(name);
  return query.toString();
}
