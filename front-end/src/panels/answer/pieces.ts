/** Stretches of a text that can be pointed at, focused and chosen: one of them is reached by Tab, the others by arrows. */
import { h } from "../../draw/dom";
import type { Lifetime } from "../../lifetime";
import type { Focus } from "../../model/answer";

export interface Actions {
  choose(focus: Focus): void;
  hover(focus: Focus | null): void;
}

export class Pieces {
  readonly elements = new Map<number, HTMLElement>();

  constructor(
    private readonly kind: Focus["kind"],
    private readonly actions: Actions,
  ) {}

  /** A stretch of text that wraps as text does, which buttons do not. */
  make(index: number, text: string): HTMLElement {
    const element = h(
      "span",
      { class: "piece", role: "button", tabindex: this.elements.size === 0 ? 0 : -1, "data-piece": index },
      text,
    );
    this.elements.set(index, element);
    return element;
  }

  listen(box: HTMLElement, lifetime: Lifetime): void {
    lifetime.listen<PointerEvent>(box, "pointerover", (event) => this.actions.hover(this.at(event)));
    lifetime.listen(box, "pointerleave", () => this.actions.hover(null));
    lifetime.listen<MouseEvent>(box, "click", (event) => this.choose(event));
    lifetime.listen<FocusEvent>(box, "focusin", (event) => this.focused(event));
    lifetime.listen(box, "focusout", () => this.actions.hover(null));
    lifetime.listen<KeyboardEvent>(box, "keydown", (event) => this.typed(event));
  }

  private at(event: Event): Focus | null {
    const found = (event.target as HTMLElement).closest<HTMLElement>("[data-piece]");
    return found && { kind: this.kind, index: Number(found.dataset.piece) };
  }

  private choose(event: Event): void {
    const focus = this.at(event);
    if (focus) this.actions.choose(focus);
  }

  private focused(event: Event): void {
    const focus = this.at(event);
    if (!focus) return;
    for (const [index, element] of this.elements) element.tabIndex = index === focus.index ? 0 : -1;
    // A click focuses as well, and the pointer is there already.
    if (this.elements.get(focus.index)!.matches(":focus-visible")) this.actions.hover(focus);
  }

  private typed(event: KeyboardEvent): void {
    const focus = this.at(event);
    if (!focus || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.actions.choose(focus);
      return;
    }
    // What is inside a closed document cannot have the focus.
    const shown = [...this.elements.values()].filter((element) => element.getClientRects().length > 0);
    const place = shown.indexOf(this.elements.get(focus.index)!);
    const steps: Record<string, number> = {
      ArrowLeft: place - 1,
      ArrowUp: place - 1,
      ArrowRight: place + 1,
      ArrowDown: place + 1,
      Home: 0,
      End: shown.length - 1,
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    shown[Math.min(shown.length - 1, Math.max(0, step))]?.focus();
  }
}
