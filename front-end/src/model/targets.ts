/** Everything to which a flow can be followed: the values of explanations, which may become more, and the rollout of maps. */
import type { Analysis } from "./analysis";
import type { Explanation } from "./explanation";
import * as format from "./format";
import type { PredictionPayload } from "./payload";
import { canRoll, rolloutOf } from "./rollout";
import { ROLLOUT, type State } from "./state";
import { phrase } from "./tokens";

/** One value that is explained: which explanation, and which of its targets. */
export interface Explained {
  explanation: Explanation;
  targetIndex: number;
}

export class Targets {
  private readonly explained: Explained[] = [];
  private readonly rolled: Analysis | null;
  /** The numbers of what was requested in the page. */
  private readonly requested = new Map<string, number>();
  private last: { query: number; explanation: Explanation } | null = null;

  constructor(
    explanations: readonly Explanation[],
    analysis: Analysis | null,
    /** What the model predicts, wherever it predicts something. */
    private readonly known: readonly PredictionPayload[],
  ) {
    for (const explanation of explanations) this.add(explanation);
    this.rolled = analysis && canRoll(analysis) ? analysis : null;
  }

  /** Add an explanation; the number of its first value. */
  add(explanation: Explanation): number {
    const first = this.explained.length;
    explanation.targets.forEach((_, targetIndex) => {
      this.explained.push({ explanation, targetIndex });
    });
    return first;
  }

  /** Add the answer to a request of the page. */
  answer(request: string, explanation: Explanation): void {
    this.requested.set(request, this.add(explanation));
  }

  /** The number of what was requested; undefined where there is none. */
  numberOf(request: string): number | undefined {
    return this.requested.get(request);
  }

  /** The state that shows one of the values, none of its nodes followed. */
  choose(number: number): Pick<State, "target" | "explain" | "depth" | "token"> {
    const target = this.fitted(number);
    const explain = [...this.requested].find(([, one]) => one === target)?.[0] ?? "";
    return { target, explain, depth: -1, token: -1 };
  }

  get any(): boolean {
    return this.explained.length > 0 || this.rolled !== null;
  }

  get first(): Explained | undefined {
    return this.explained[0];
  }

  /** The tokens that a rollout can go to. */
  get tokens(): Analysis["keys"] | null {
    return this.rolled?.keys ?? null;
  }

  /** The nearest number that there is. */
  fitted(number: number): number {
    const [least, most] = [this.rolled ? ROLLOUT : 0, this.explained.length - 1];
    return Math.max(least, Math.min(number, most));
  }

  at({ target, query }: Pick<State, "target" | "query">): Explained {
    const number = this.fitted(target);
    if (number >= 0 || !this.rolled) return this.explained[Math.max(0, number)]!;
    const token = Math.min(query, this.rolled.queries.token.length - 1);
    if (this.last?.query !== token) this.last = { query: token, explanation: rolloutOf(this.rolled, token) };
    return { explanation: this.last.explanation, targetIndex: 0 };
  }

  /** What the model predicts at the places of a text. */
  predictions(explanation: Explanation): readonly PredictionPayload[] {
    return this.known.length > 0 ? this.known : explanation.predictions;
  }

  choices(): { value: string; label: string }[] {
    const texts = new Set(this.explained.map(({ explanation }) => explanation.text));
    const values = this.explained.map(({ explanation, targetIndex }, index) => {
      const { name, value } = explanation.targets[targetIndex]!;
      const about = texts.size > 1 ? ` \u00b7 ${explanation.text.slice(0, 40)}` : "";
      return { value: String(index), label: `${phrase(name)}  ${format.signed(value)}${about}` };
    });
    return this.rolled ? [...values, { value: String(ROLLOUT), label: "a token, by rollout of the maps" }] : values;
  }
}
