/** The answer, word by word; what an item of the context fed is coloured by how much. */
import { type AnswerView, paintPiece } from "../../draw/answerview";
import { h } from "../../draw/dom";
import { type Answer, wordTexts } from "../../model/answer";
import * as format from "../../model/format";
import { exactTo, factsPopover } from "../facts";
import { Panel } from "../panel";
import { type Actions, Pieces } from "./pieces";

/** How many words that an item fed are named. */
const MOST_NAMED = 3;

const EXPLAINED: Record<string, string> = {
  centred: "the logits of its tokens above their mean",
  logit: "the logits of its tokens",
  alternatives: "the logits of its tokens above the mean of all others",
  contrast: "the logits of its tokens above those of the next best",
};

export class Reply extends Panel<AnswerView> {
  readonly element: HTMLElement;
  private readonly pieces: Pieces;
  private readonly words: string[];
  private readonly note = h("p", { class: "hint", role: "status" });

  constructor(answer: Answer, actions: Actions) {
    super();
    this.words = wordTexts(answer);
    this.pieces = new Pieces("word", actions);
    const text = answer.answer.map((part) => {
      if (part.word < 0) return part.text;
      const piece = this.pieces.make(part.word, part.text);
      piece.classList.toggle("explained", answer.explained !== "" && part.explained === true);
      piece.title = `probability ${format.share(part.probability ?? Number.NaN)}`;
      return piece;
    });
    const box = h("p", { class: "reply-text", dir: "auto" }, ...text);
    this.pieces.listen(box, this.lifetime);
    const title = h("div", {}, h("h1", {}, "Answer"), h("span", { class: "hint" }, String(answer.facts.model ?? "")));
    const about = h("p", { class: "note" }, aboutOf(answer));
    this.element = h(
      "section",
      { class: "card reply" },
      h("header", {}, title, factsOf(answer)),
      box,
      this.note,
      about,
    );
  }

  update({ answer, fed, focus, chosen, fedColours }: AnswerView): void {
    for (const [word, element] of this.pieces.elements) {
      paintPiece(element, fed && fed[word]!, fedColours);
      element.classList.toggle("chosen", focus?.kind === "word" && focus.index === word);
      element.setAttribute("aria-pressed", String(chosen?.kind === "word" && chosen.index === word));
    }
    const text = answer.missing || (fed ? this.namesOf(fed) : HINT);
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  private namesOf(fed: readonly number[]): string {
    const largestFirst = fed
      .map((_, word) => word)
      .toSorted((one, other) => Math.abs(fed[other]!) - Math.abs(fed[one]!));
    const named = largestFirst
      .slice(0, MOST_NAMED)
      .map((word) => `\u2068${this.words[word]}\u2069 ${format.signed(fed[word]!)}`);
    return `It fed ${named.join(", ")}.`;
  }
}

const HINT = "Point at a word to see where it came from, and at the context to see what it fed. A click keeps it.";

function aboutOf({ explained, facts, value }: Answer): string {
  const against = `the logit of its first token that differs, minus that of \u201c${facts.against}\u201d`;
  const what = facts.against ? against : EXPLAINED[String(facts.objective)]!;
  const part = explained === "" ? "" : `Only \u201c${explained}\u201d is explained. `;
  return `${part}Shares add up to ${format.addend(value)}: ${what}.`;
}

function factsOf({ error, facts }: Answer): HTMLElement {
  const proof = h("p", {}, `All shares add up to the model\u2019s own logits. Relative error: ${format.error(error)}`);
  return factsPopover(exactTo(error), facts, [proof], "Completeness: click for model facts.");
}
