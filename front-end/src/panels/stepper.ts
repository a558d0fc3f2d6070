/** The signature of the explorer: the chain of a block as a film strip, walked step by step while the map rewrites itself. */
import { h } from "../draw/dom";
import type { Thumbnail, Thumbnails } from "../draw/thumbnails";
import type { Pane } from "../model/pane";
import { type Scope, stepsOf } from "../model/scopes";
import type { State } from "../model/state";
import type { Store } from "../model/store";
import { Panel } from "./panel";
import { handleArrows, markChosen } from "./radiogroup";

const PACE = 1100;
const SIZE = { one: 52, two: 44 };

export class Stepper extends Panel<State> {
  readonly element: HTMLElement;
  private readonly strip: HTMLElement;
  private readonly play: HTMLButtonElement;
  private scopes: string[] = [];
  private thumbnails: Thumbnail[] = [];
  private timer = 0;

  constructor(
    private readonly store: Store,
    private readonly panes: Pane[],
    private readonly drawer: Thumbnails,
  ) {
    super();
    this.strip = h("div", {
      class: "strip",
      role: "radiogroup",
      "aria-label": "Scope: how far along the chain of the block",
    });
    this.play = h("button", {
      class: "play",
      type: "button",
      "aria-label": "Play the chain",
      title: "Play the chain (p)",
      click: () => this.toggle(),
    });
    const back = h(
      "button",
      {
        type: "button",
        "aria-label": "Previous component",
        title: "Previous component ([)",
        click: () => this.step(-1),
      },
      "\u2039",
    );
    const next = h(
      "button",
      { type: "button", "aria-label": "Next component", title: "Next component (])", click: () => this.step(1) },
      "\u203a",
    );
    this.element = h(
      "nav",
      { class: "stepper", "aria-label": "Chain of the block" },
      h("div", { class: "transport" }, back, this.play, next),
      this.strip,
    );
    const current = (): number => this.scopes.indexOf(store.state.scope);
    handleArrows(this.strip, current, (by) => this.step(by));
    this.setPlaying(false);
    this.lifetime.onEnd(() => window.clearInterval(this.timer));
  }

  update(state: State): void {
    const { scopes, scopeNames } = this.panes[0]!.lens(state).analysis;
    if (scopeNames.join() !== this.scopes.join()) this.build(scopes);
    const current = scopeNames.indexOf(state.scope);
    [...this.strip.children].forEach((child, index) => {
      child.classList.toggle("passed", index < current);
      child.classList.toggle("base", scopeNames[index] === state.base);
    });
    markChosen(this.strip, current);
    // A difference has no film strip of its own: the strip goes on showing the maps themselves.
    this.drawer.update(this.thumbnails, state);
  }

  step(by: number): void {
    const next = this.scopes[this.scopes.indexOf(this.store.state.scope) + by];
    if (next !== undefined) this.store.set({ scope: next });
  }

  toggle(): void {
    const playing = this.timer === 0;
    this.setPlaying(playing);
    if (playing && this.store.state.scope === this.scopes[this.scopes.length - 1])
      this.store.set({ scope: this.scopes[0]! });
  }

  private setPlaying(playing: boolean): void {
    window.clearInterval(this.timer);
    this.timer = playing ? window.setInterval(() => this.advance(), PACE) : 0;
    this.play.replaceChildren(h("span", { class: playing ? "pause-icon" : "play-icon", "aria-hidden": "true" }));
    this.play.setAttribute("aria-pressed", String(playing));
  }

  private advance(): void {
    this.step(1);
    if (this.scopes.indexOf(this.store.state.scope) >= this.scopes.length - 1) this.setPlaying(false);
  }

  private build(scopes: Scope[]): void {
    this.scopes = scopes.map(({ name }) => name);
    this.thumbnails = [];
    const size = this.panes.length > 1 ? SIZE.two : SIZE.one;
    const steps = stepsOf(scopes).map(({ scope, title }) => {
      const pictures = this.panes.map((pane) => {
        const canvas = h("canvas", { class: "thumbnail", width: size, height: size, "aria-hidden": "true" });
        this.thumbnails.push({ canvas, pane, size, of: (state) => ({ ...state, scope, base: "" }) });
        return canvas;
      });
      return h(
        "button",
        {
          type: "button",
          class: "step",
          role: "radio",
          "aria-label": `${title}: ${scope}`,
          title: scope,
          "data-scope": scope,
          click: () => this.store.set({ scope }),
        },
        h("span", { class: "pictures" }, ...pictures),
        h("span", { class: "title" }, title),
        h("span", { class: "name" }, scope),
      );
    });
    this.strip.replaceChildren(...steps);
  }
}
