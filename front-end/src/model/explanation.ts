/** One decoded explanation: its targets, and for each stack of layers what flows through it. Knows nothing of what is shown. */
import { type Picture, pictureOf } from "./analysis";
import { decodeBlock, inflate, type Rows } from "./decode";
import type {
  EdgesPayload,
  ExplanationPayload,
  Facts,
  PredictionPayload,
  StackPayload,
  TargetPayload,
  TokenTable,
} from "./payload";

/** The edges of one layer that the page carries, largest first. */
export interface LayerEdges {
  indices: Uint32Array;
  values: Float32Array;
  /** The absolute value of all edges, also of those that the page does not carry. */
  total: number;
}

/** What is known of every head, feed-forward and bias: `[target, layer, ...]`. */
interface Shares {
  heads: Rows;
  feedForward: Rows;
  bias: Rows;
  edges: LayerEdges[];
  taken: Rows | null;
}

export class Stack {
  constructor(
    readonly tokens: TokenTable,
    /** The tokens, and for a decoder those of the encoder after them. */
    readonly keys: TokenTable,
    private readonly relevances: Rows,
    private readonly shares: Shares | null,
  ) {}

  get layers(): number {
    return (this.relevances.shape[1] ?? 1) - 1;
  }

  get heads(): number {
    return this.shares?.heads.shape[2] ?? 0;
  }

  /** Whether it is known what flows from layer to layer, not only what came of it. */
  get followed(): boolean {
    return this.shares !== null;
  }

  /** `[token]` after a layer; depth 0 is what enters the first. */
  relevance(target: number, depth: number): Float32Array {
    return this.relevances.read(target * (this.layers + 1) + depth, 1);
  }

  edges(target: number, layer: number): LayerEdges {
    return this.shares!.edges[target * this.layers + layer - 1]!;
  }

  /** `[key]`: what a head (from 1) takes from every token. */
  head(target: number, layer: number, head: number): Float32Array {
    return this.shares!.heads.read((target * this.layers + layer - 1) * this.heads + head - 1, 1);
  }

  /** `[token]`: what comes through the feed-forward of every token. */
  feedForward(target: number, layer: number): Float32Array {
    return this.shares!.feedForward.read(target * this.layers + layer - 1, 1);
  }

  /** `[token]`: what a layer's biases add at every token. */
  bias(target: number, layer: number): Float32Array {
    return this.shares!.bias.read(target * this.layers + layer - 1, 1);
  }

  /** `[source key]`: what a layer takes from the tokens of an encoder; nothing without one. */
  taken(target: number, layer: number): Float32Array {
    return this.shares!.taken?.read(target * this.layers + layer - 1, 1) ?? new Float32Array();
  }
}

/** What a logit is compared with, by the objective (`normscope/results/explanation_words.py`). */
const COMPARED: Record<string, string> = {
  alternatives: "compared with what else it might have said",
  centred: "compared with all that it might have said",
  logit: "as a raw logit, compared with nothing",
};

export class Explanation {
  constructor(
    readonly facts: Facts,
    readonly method: string,
    readonly quantity: string,
    readonly error: number | null,
    readonly targets: TargetPayload[],
    private readonly decoder: Stack,
    private readonly encoder: Stack | null,
    readonly picture: Picture | null,
    /** What the model predicts at the places of the targets. */
    readonly predictions: PredictionPayload[] = [],
    /** For estimates: how the numbers were computed. */
    readonly estimate: string | null = null,
    /** What a share is, in words. */
    readonly meaning: string = quantity,
    readonly note: string = "",
    /** How the host knows it. */
    readonly id: string = "",
  ) {}

  /** What the value of a target is, in words; nothing where its name says it. */
  get compared(): string {
    return COMPARED[String(this.facts.objective)] ?? "";
  }

  get model(): string {
    return String(this.facts.model ?? "");
  }

  get text(): string {
    return String(this.facts.text ?? "");
  }

  get hasEncoder(): boolean {
    return this.encoder !== null;
  }

  stack(name: "decoder" | "encoder"): Stack {
    return name === "encoder" && this.encoder ? this.encoder : this.decoder;
  }

  /** The attribution to the tokens of every stack that reads some: of the decoder (or the only stack), then of the encoder. */
  attribution(target: number): Float32Array[] {
    return [this.decoder, this.encoder].flatMap((stack) => (stack ? [stack.relevance(target, 0)] : []));
  }
}

export async function decodeExplanation(payload: ExplanationPayload): Promise<Explanation> {
  const { id, facts, method, quantity, meaning, note, error, targets, predictions, stack, encoder, image } = payload;
  return new Explanation(
    facts,
    method,
    quantity,
    error,
    targets,
    await decodeStack(stack),
    encoder ? await decodeStack(encoder) : null,
    image ? await pictureOf(image) : null,
    predictions,
    null,
    meaning,
    note,
    id,
  );
}

async function decodeStack(payload: StackPayload): Promise<Stack> {
  const { tokens, keys, relevance, heads, feedForward, bias, edges, taken } = payload;
  const shares =
    heads && feedForward && bias && edges
      ? {
          heads: await decodeBlock(heads),
          feedForward: await decodeBlock(feedForward),
          bias: await decodeBlock(bias),
          edges: await decodeEdges(edges),
          taken: taken ? await decodeBlock(taken) : null,
        }
      : null;
  const sinks = tokens.sink ? { sink: keys.token.map((_, key) => tokens.sink?.[key] ?? 0) } : {};
  return new Stack(tokens, { ...keys, ...sinks }, await decodeBlock(relevance), shares);
}

async function decodeEdges({ count, total, place, value }: EdgesPayload): Promise<LayerEdges[]> {
  const indices = new Uint32Array((await inflate(place)).buffer);
  const values = new Float32Array((await inflate(value)).buffer);
  let begin = 0;
  return count.map((edges, index) => {
    const [from, to] = [begin, begin + edges];
    begin = to;
    return { indices: indices.subarray(from, to), values: values.subarray(from, to), total: total[index]! };
  });
}
