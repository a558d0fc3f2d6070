/** The page of an explained answer: the context on one side, the answer and its ranking on the other. */
import { type AnswerView, answerView } from "./draw/answerview";
import { h } from "./draw/dom";
import { answerFigure } from "./exports/figure";
import { answerCsv, answerJson } from "./exports/records";
import type { Host } from "./hosts/host";
import {
  type Answer,
  type AnswerPayload,
  type AnswerState,
  chosenOf,
  decodeAnswer,
  type Focus,
  initialAnswerState,
  parseAnswerState,
} from "./model/answer";
import * as format from "./model/format";
import { formatState } from "./model/state";
import { Store } from "./model/store";
import { Page } from "./page";
import { AnswerContext } from "./panels/answer/context";
import type { Actions } from "./panels/answer/pieces";
import { Ranking } from "./panels/answer/ranking";
import { Reply } from "./panels/answer/reply";
import { AnswerToolbar } from "./panels/answer/toolbar";
import { Exports } from "./panels/exports";
import { Masthead } from "./panels/masthead";
import type { Exportable } from "./section";
import type { Shortcut } from "./shortcuts";

/** Show an answer in an element; returns a function that removes it. */
export async function mountAnswer(root: HTMLElement, payload: AnswerPayload, host: Host): Promise<() => void> {
  const page = new AnswerPage(root, await decodeAnswer(payload), host);
  return () => page.dispose();
}

class AnswerPage {
  private readonly store: Store<AnswerState>;
  private readonly page: Page<AnswerState>;
  private readonly masthead: Masthead;
  private readonly toolbar: AnswerToolbar;
  private readonly context: AnswerContext;
  private readonly reply: Reply;
  private readonly ranking: Ranking;
  private hovered: Focus | null = null;
  private view: AnswerView | null = null;

  constructor(
    root: HTMLElement,
    private readonly answer: Answer,
    private readonly host: Host,
  ) {
    this.store = new Store(parseAnswerState(host.readState(), answer));
    this.page = new Page(root, host, this.store);
    const actions: Actions = { choose: (focus) => this.choose(focus), hover: (focus) => this.hover(focus) };
    this.toolbar = new AnswerToolbar(this.store, answer);
    this.context = new AnswerContext(answer, actions);
    this.reply = new Reply(answer, actions);
    this.ranking = new Ranking(answer, {
      ...actions,
      choose: (focus) => {
        this.context.reveal(focus.index);
        this.choose(focus);
      },
    });
    const question = answer.sources.find(({ kind }) => kind === "question");
    const asked = (question?.pieces ?? answer.answer).map(({ text }) => text).join("");
    const exports = new Exports(host.linkable ?? false, () => this.exportable);
    this.masthead = new Masthead([{ facts: { text: asked }, tokens: 0, image: false }], () => this.shortcuts, exports);
    const side = h("div", { class: "answer-side" }, this.reply, this.ranking);
    root.replaceChildren(
      this.masthead.element,
      h("div", {}, this.toolbar, h("article", { class: "stage answer-stage" }, this.context, side)),
    );
    this.listen();
    this.show();
  }

  dispose(): void {
    this.page.dispose([this.masthead, this.toolbar, this.context, this.reply, this.ranking]);
  }

  private listen(): void {
    this.store.subscribe((state) => {
      this.show();
      this.host.writeState(formatState(state, initialAnswerState(this.answer)));
    });
    this.page.listen(
      () => this.shortcuts,
      () => this.show(),
      (fragment) => parseAnswerState(fragment, this.answer),
    );
  }

  private show(): void {
    if (this.page.ended) return;
    const { state } = this.store;
    const look = this.page.look();
    const shares = this.answer.views.find(({ name }) => name === state.view)!;
    const chosen = chosenOf(state);
    this.view = answerView(this.answer, shares, this.hovered ?? chosen, chosen, look);
    this.toolbar.update(state);
    for (const panel of [this.context, this.reply, this.ranking]) panel.update(this.view);
    this.masthead.update(state);
  }

  /** Choose a word or an item; what is chosen already is no longer. */
  private choose({ kind, index }: Focus): void {
    const same = this.store.state[kind] === index;
    this.store.set({ word: -1, item: -1, [kind]: same ? -1 : index });
  }

  private hover(focus: Focus | null): void {
    if (focus?.kind === this.hovered?.kind && focus?.index === this.hovered?.index) return;
    this.hovered = focus;
    this.page.later(() => this.show());
  }

  private get shortcuts(): Shortcut[] {
    const { store, answer } = this;
    const other = (): void => {
      const next = answer.views.find(({ name }) => name !== store.state.view);
      if (next) store.set({ view: next.name });
    };
    const step = (by: number) => (): void => {
      const count = answer.words;
      const { word } = store.state;
      store.set({ item: -1, word: word < 0 ? (by > 0 ? 0 : count - 1) : (word + by + count) % count });
    };
    return [
      {
        keys: "[ and ]",
        description: "previous and next word of the answer",
        actions: { "[": step(-1), "]": step(1) },
      },
      { keys: "arrows", description: "in a text: next word or sentence" },
      { keys: "Enter", description: "choose the word or sentence in focus" },
      ...(answer.views.length > 1
        ? [{ keys: "d", description: "direct, or through the answer", actions: { d: other } }]
        : []),
      { keys: "Escape", description: "show all again", actions: { Escape: () => store.set({ word: -1, item: -1 }) } },
    ];
  }

  private get exportable(): Exportable {
    return {
      name: () => "normscope-answer",
      note: () => {
        const error = this.answer.views[0]!.rows?.error ?? 0;
        const words = error > 0 ? `, whose shares are within ${format.share(error)}` : "";
        return `Data is that of what is chosen, and of every word${words}.`;
      },
      figure: () => answerFigure(this.view!),
      csv: () => Promise.resolve(answerCsv(this.view!)),
      json: () => Promise.resolve(answerJson(this.view!)),
    };
  }
}
