/** A page of similarities: one pair of texts, or a query and its passages. */
import { h } from "./draw/dom";
import { type Focus, type SimilarityView, similarityView } from "./draw/similarityview";
import { similarityFigure } from "./exports/figure";
import { similarityCsv, similarityJson } from "./exports/records";
import type { Host } from "./hosts/host";
import * as format from "./model/format";
import type { Payload } from "./model/payload";
import { type Account, accountOf, decodeSimilarity, hasImage, SIDES, type Similarity } from "./model/similarity";
import {
  fitSimilarityState,
  initialSimilarityState,
  parseSimilarityState,
  type SimilarityState,
} from "./model/similaritystate";
import { formatState } from "./model/state";
import { Store } from "./model/store";
import { label } from "./model/tokens";
import { Page } from "./page";
import { Exports } from "./panels/exports";
import { exactTo, factsPopover } from "./panels/facts";
import { Masthead } from "./panels/masthead";
import { SimilarityMap } from "./panels/similarity/map";
import { Partners } from "./panels/similarity/partners";
import { Passages } from "./panels/similarity/passages";
import { Sums } from "./panels/similarity/sums";
import { type Actions, SimilarTexts } from "./panels/similarity/texts";
import { SimilarityToolbar } from "./panels/similarity/toolbar";
import type { Exportable } from "./section";
import type { Shortcut } from "./shortcuts";

const SHARES = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100];

/** Show similarities in an element; returns a function that removes them. */
export async function mountSimilarities(root: HTMLElement, payload: Payload, host: Host): Promise<() => void> {
  const similarities = await Promise.all((payload.similarities ?? []).map(decodeSimilarity));
  const page = new Similarities(root, similarities, host);
  return () => page.dispose();
}

class Similarities {
  private readonly store: Store<SimilarityState>;
  private readonly page: Page<SimilarityState>;
  private readonly initial: SimilarityState;
  private readonly toolbar: SimilarityToolbar;
  private readonly masthead: Masthead;
  private readonly passages: Passages | null;
  private readonly texts: SimilarTexts;
  private readonly map: SimilarityMap;
  private readonly sums = new Sums();
  private readonly partners: Partners;
  private readonly title = h("h1");
  private readonly note = h("span", { class: "hint" });
  private readonly corner = h("div");
  private readonly hint = h("p", { class: "hint" });
  private readonly announcement = h("p", { class: "visually-hidden", role: "status" });
  private view: SimilarityView | null = null;
  private made: { name: string; account: Account } | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly similarities: readonly Similarity[],
    private readonly host: Host,
  ) {
    this.initial = initialSimilarityState(similarities[0]!);
    this.store = new Store(this.fitted(parseSimilarityState(host.readState(), this.initial)));
    this.page = new Page(root, host, this.store);
    const actions: Actions = { choose: (focus) => this.choose(focus), hover: (focus) => this.hover(focus) };
    this.toolbar = new SimilarityToolbar(this.store, similarities);
    this.passages = similarities.length > 1 ? new Passages(this.store, similarities) : null;
    this.texts = new SimilarTexts(actions);
    this.map = new SimilarityMap(actions);
    this.partners = new Partners(actions);
    const exports = new Exports(host.linkable ?? false, () => this.exportable);
    this.masthead = new Masthead(this.headings(), () => this.shortcuts, exports);
    this.build();
    this.listen();
    this.show();
  }

  dispose(): void {
    const { masthead, toolbar, passages, texts, map, sums, partners } = this;
    this.page.dispose([masthead, toolbar, passages, texts, map, sums, partners]);
  }

  private build(): void {
    const card = h(
      "section",
      { class: "card map-card similarity-card" },
      h("header", {}, h("div", {}, this.title, this.note), this.corner),
      this.texts,
      h("footer", {}, this.hint),
      this.announcement,
    );
    const side = h("div", { class: "inspector" }, this.sums, this.partners);
    const stage = h("article", { class: "stage similarity-stage" }, this.passages, card, this.map, side);
    stage.classList.toggle("ranked", this.passages !== null);
    this.root.replaceChildren(this.masthead.element, h("div", { class: "similarities" }, this.toolbar, stage));
  }

  private listen(): void {
    this.store.subscribe(() => this.changed());
    this.page.listen(
      () => this.shortcuts,
      () => this.show(),
      (fragment) => this.fitted(parseSimilarityState(fragment, this.initial)),
    );
  }

  private fitted(state: SimilarityState): SimilarityState {
    return fitSimilarityState(state, this.similarities);
  }

  private changed(): void {
    const { state } = this.store;
    const fitted = this.fitted(state);
    if (JSON.stringify(fitted) !== JSON.stringify(state)) {
      this.store.set(fitted);
      return;
    }
    this.show();
    this.host.writeState(formatState(state, this.initial));
  }

  private show(): void {
    if (this.page.ended) return;
    const { state } = this.store;
    const look = this.page.look();
    const view = similarityView(this.account(state), state, look);
    const elsewhere = this.view?.account.similarity !== view.account.similarity;
    this.view = view;
    this.toolbar.update(state);
    this.passages?.update({ state, dark: look.dark });
    this.heading(view, elsewhere);
    for (const panel of [this.texts, this.map, this.sums, this.partners]) panel.update(view);
    this.masthead.update(state);
  }

  /** The similarity in the chosen units, made once. */
  private account({ pair, units, special }: SimilarityState): Account {
    const name = [pair, units, special].join();
    if (this.made?.name !== name)
      this.made = { name, account: accountOf(this.similarities[pair]!, { kind: units, special }) };
    return this.made.account;
  }

  private heading(view: SimilarityView, elsewhere: boolean): void {
    const { similarity, table } = view.account;
    const { measure, value, facts } = similarity;
    const { logit_scale: scale, logit_bias: shift } = facts;
    const logit =
      typeof scale === "number" && typeof shift === "number"
        ? ` \u00b7 logit ${format.number(scale * value + shift)}`
        : "";
    this.title.textContent = `${measure} ${format.number(value)}${logit}`;
    const pooling = facts.pooling === undefined ? "" : ` \u00b7 ${facts.pooling} pooling`;
    this.note.textContent = `${facts.model ?? ""}${pooling}`;
    if (elsewhere) this.corner.replaceChildren(factsOf(similarity));
    const isImage = hasImage(view.account);
    const drawn = isImage
      ? ""
      : `${view.pairs.length} pairs, ${format.share(view.carried)} of what is between the texts.`;
    const signs = "Orange raises the similarity, violet lowers it";
    const how = isImage
      ? "point at a token, and the image shows what each patch does with it."
      : `the wider a ribbon, the more. ${drawn}`;
    this.hint.textContent = table ? `${signs}; ${how}` : `${signs}.`;
    const chosen = SIDES.filter((side) => view.selected?.[side] !== undefined).map(
      (side) => `${label(view.account.lines[side].units.shown[view.selected![side]!]!)} (${side} text)`,
    );
    const text = chosen.length > 0 ? `Chosen: ${chosen.join(" and ")}` : `${this.title.textContent}. ${drawn}`;
    if (this.announcement.textContent !== text) this.announcement.textContent = text;
  }

  /** What the head of the page shows: both texts, or the query that passages were found for. */
  private headings(): { facts: Record<string, string>; tokens: number; image: boolean }[] {
    const texts = this.similarities.map(({ sides }) => SIDES.map((side) => sides[side].text));
    const shown = this.similarities.length > 1 ? [texts[0]![0]!] : texts[0]!;
    return shown.map((text) => ({ facts: { text }, tokens: 0, image: false }));
  }

  /** Choose units, by the first token of each; what is chosen already is no longer. */
  private choose(focus: Focus): void {
    const { view, store } = this;
    if (!view) return;
    const same = view.selected !== null && SIDES.every((side) => view.selected![side] === focus[side]);
    const token = (side: "first" | "second"): number => {
      const unit = same ? undefined : focus[side];
      return unit === undefined ? -1 : (view.account.lines[side].units.members[unit]?.[0] ?? -1);
    };
    store.set({ first: token("first"), second: token("second") });
  }

  private hover(focus: Focus | null): void {
    this.page.later(() => {
      for (const panel of [this.texts, this.map, this.partners]) panel.point(focus);
    });
  }

  private get shortcuts(): Shortcut[] {
    const { store, similarities } = this;
    const pair = (by: number) => (): void => store.set({ pair: store.state.pair + by, first: -1, second: -1 });
    const share = (by: 1 | -1) => (): void => {
      const now = store.state.share;
      const next = by > 0 ? SHARES.find((one) => one > now) : SHARES.findLast((one) => one < now);
      store.set({ share: next ?? now });
    };
    return [
      ...(similarities.length > 1
        ? [{ keys: "[ and ]", description: "previous and next passage", actions: { "[": pair(-1), "]": pair(1) } }]
        : []),
      {
        keys: "+  \u2212",
        description: "show more or fewer ribbons",
        actions: { "+": share(1), "=": share(1), "-": share(-1) },
      },
      { keys: "arrows", description: "in a text: next token; up and down: to its strongest partner" },
      { keys: "w", description: "subwords, words, sentences", actions: { w: () => this.nextUnits() } },
      {
        keys: "Escape",
        description: "show all again",
        actions: { Escape: () => store.set({ first: -1, second: -1 }) },
      },
    ];
  }

  private nextUnits(): void {
    const kinds = this.toolbar.kinds(this.store.state);
    this.store.set({ units: kinds[(kinds.indexOf(this.store.state.units) + 1) % kinds.length]! });
  }

  private get exportable(): Exportable {
    return {
      name: () => `normscope-similarity${this.passages ? `-${this.store.state.pair + 1}` : ""}`,
      note: () => "Data is exported as float32: the whole table, in the units that are shown.",
      figure: () => similarityFigure(this.view!),
      csv: () => Promise.resolve(similarityCsv(this.view!.account)),
      json: () => Promise.resolve(similarityJson(this.view!.account)),
    };
  }
}

const HIDDEN = /_(?:text|prompt)$/u;

function factsOf({ error, facts }: Similarity): HTMLElement {
  const shown = Object.fromEntries(Object.entries(facts).filter(([name]) => !HIDDEN.test(name)));
  const description =
    "The table, its margins and the constant add up to the model\u2019s own similarity. Relative error:";
  return factsPopover(
    exactTo(error),
    shown,
    [h("p", {}, `${description} ${format.error(error)}`)],
    "Completeness: click for model facts.",
  );
}
