/** The third form of the web app: a context, a question about it, perhaps its answer, and the model. */
import { area, BoxForm } from "./boxform";
import type { Settings } from "./form";
import type { AnswerRequest } from "./requests";

const CONTEXT = "Marta lives in Lisbon. She works as a surgeon.\n---\nNoor was born in Oslo. She bought a green canoe.";
const QUESTION = "Where does Marta live?";

export class AnswerForm extends BoxForm {
  private readonly context: HTMLTextAreaElement;
  private readonly question: HTMLTextAreaElement;
  private readonly given: HTMLTextAreaElement;

  constructor({ models, characters }: Settings, submit: () => void) {
    const context = area("Context", `${CONTEXT} (a line of hyphens is between documents)`);
    const question = area("Question", QUESTION);
    const given = area("Answer", "The answer, if the model is not to answer itself (optional)");
    const fields = [context, question, given];
    super(
      models.filter(({ answers }) => answers),
      {
        kind: "answering",
        label: "Ask a question about a context",
        question: "Where does an answer come from?",
        button: "Answer",
      },
      [
        { field: context, example: CONTEXT },
        { field: question, example: QUESTION },
      ],
      fields,
      submit,
    );
    for (const field of fields) field.maxLength = characters;
    context.rows = 4;
    this.context = context;
    this.question = question;
    this.given = given;
  }

  get request(): AnswerRequest {
    const { context, question, given, model } = this;
    return { context: context.value, question: question.value, given: given.value.trim(), model };
  }

  set({ context, question, given, model }: AnswerRequest): void {
    this.context.value = context;
    this.question.value = question;
    this.given.value = given;
    this.choose(model);
  }
}
