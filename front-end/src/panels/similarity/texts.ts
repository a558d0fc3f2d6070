/** Both texts, one above the other, with ribbons between their tokens; a token under the pointer shows its partners. */
import { inkOn } from "../../draw/colour";
import { bdi, h, s } from "../../draw/dom";
import { signs, tint } from "../../draw/flowview";
import { svgOf } from "../../draw/marks";
import { chipText, imageMarks, type RibbonLayout, ribbonLayout, ribbonMarks } from "../../draw/ribbons";
import { belongs, type Focus, type SimilarityView } from "../../draw/similarityview";
import * as format from "../../model/format";
import {
  type Account,
  hasImage,
  largestOf,
  otherSide,
  type Pair,
  partnersOf,
  SIDES,
  type SideName,
} from "../../model/similarity";
import { shortLabel } from "../../model/tokens";
import { Panel } from "../panel";

export interface Actions {
  choose(focus: Focus): void;
  hover(focus: Focus | null): void;
}

/** How many partners of a token in focus have ribbons, also where they are too small to have one otherwise. */
const MOST_PARTNERS = 12;
/** How many partners are read out. */
const MOST_NAMED = 3;
const NAMES: Record<SideName, string> = { first: "First", second: "Second" };

export class SimilarTexts extends Panel<SimilarityView> {
  readonly element: HTMLElement;
  private readonly images = s("svg", { class: "images", "aria-hidden": "true" });
  private readonly bands = s("svg", { class: "bands", "aria-hidden": "true" });
  private readonly boxes: Record<SideName, HTMLElement>;
  private buttons: Record<SideName, HTMLButtonElement[]> = { first: [], second: [] };
  private built: Account | null = null;
  private at: RibbonLayout | null = null;
  private view: SimilarityView | null = null;
  private pointed: Focus | null = null;

  constructor(private readonly actions: Actions) {
    super();
    const box = (side: SideName): HTMLElement => h("div", { role: "group", "aria-label": NAMES[side], class: side });
    this.boxes = { first: box("first"), second: box("second") };
    this.element = h("div", { class: "similar-texts" }, this.images, this.bands, this.boxes.first, this.boxes.second);
    this.lifetime.observeSize(this.element, () => {
      if (this.element.clientWidth !== this.at?.width) this.draw();
    });
    this.lifetime.listen<PointerEvent>(this.bands, "pointerover", (event) => this.overBand(event));
    this.lifetime.listen(this.bands, "pointerleave", () => this.actions.hover(null));
    this.lifetime.listen<KeyboardEvent>(this.element, "keydown", (event) => this.typed(event));
  }

  /** The layout on the screen. */
  get layout(): RibbonLayout {
    return this.at!;
  }

  update(view: SimilarityView): void {
    this.view = view;
    if (this.built !== view.account) this.build(view.account);
    this.draw();
  }

  /** Highlight what is hovered, here or in the table. */
  point(focus: Focus | null): void {
    this.pointed = focus;
    this.paint();
  }

  private build(account: Account): void {
    this.built = account;
    for (const side of SIDES) {
      const { units, shares, prompt, joined, patches } = account.lines[side];
      this.buttons[side] = units.texts.map((text, unit) => {
        const classes = [
          "chip",
          units.special[unit] && "special",
          prompt[unit] && "prompt",
          joined[unit] && "joined",
          patches?.[unit] && "patch",
        ].filter(Boolean);
        const button = h(
          "button",
          {
            type: "button",
            class: classes.join(" "),
            title: `${units.shown[unit]}: ${format.signed(shares[unit]!)}${prompt[unit] ? " (instruction)" : ""}`,
            "aria-label": spoken(account, side, unit),
            tabindex: unit === 0 ? 0 : -1,
            click: () => this.actions.choose({ [side]: unit }),
            pointerenter: () => this.actions.hover({ [side]: unit }),
            pointerleave: () => this.actions.hover(null),
            focus: () => this.focused(side, unit),
            blur: () => this.actions.hover(null),
          },
          patches?.[unit] ? "" : bdi(chipText(text)),
        );
        return button;
      });
      this.boxes[side].replaceChildren(...this.buttons[side]);
    }
  }

  private draw(): void {
    const { view } = this;
    const width = this.element.clientWidth;
    if (!view || width === 0) return;
    this.at = ribbonLayout(view.account, view.pairs, width);
    const { chips, size, height } = this.at;
    for (const side of SIDES) {
      this.buttons[side].forEach((button, unit) => {
        const box = chips[side][unit]!;
        button.style.cssText = `left:${box.x}px;top:${box.y}px;width:${box.width}px;height:${box.height}px;font-size:${size}px`;
      });
    }
    this.element.style.height = `${height}px`;
    for (const [name, length] of Object.entries({ width, height })) {
      for (const drawing of [this.images, this.bands]) drawing.setAttribute(name, String(length));
    }
    this.images.replaceChildren(...svgOf(imageMarks(this.at, view.account)));
    this.paint();
  }

  /** Ribbons and tints: what changes with what is in focus. */
  private paint(): void {
    const { view, at } = this;
    if (!view || !at) return;
    const focus = this.pointed ?? view.selected;
    // Over an image, ribbons would hide what they are about: only those of a token in focus are drawn.
    const shown = hasImage(view.account) ? { ...view, pairs: [] } : view;
    const pairs = focus ? withPartners(shown, focus) : shown.pairs;
    const style = { dark: view.dark, focus: focus && belongs(focus) };
    this.bands.replaceChildren(...svgOf(ribbonMarks(at, view.account, pairs, style)));
    for (const side of SIDES) this.tintLine(view, side, focus);
  }

  /** Tokens by what they do; where a token of the other text is in focus, by what they do with it. */
  private tintLine(view: SimilarityView, side: SideName, focus: Focus | null): void {
    const { account, dark } = view;
    const partner = focus?.[otherSide(side)];
    const alone = focus !== null && focus[side] === undefined;
    const isTinted = account.table !== null && partner !== undefined && alone;
    const values = isTinted ? partnersOf(account.table!, otherSide(side), partner) : account.lines[side].shares;
    const line = account.lines[side];
    const colours = isTinted || line.patches ? signs(largestOf(line, values), dark) : view.colours;
    this.buttons[side].forEach((button, unit) => {
      const background = tint(values[unit]!, colours);
      const isDim = focus?.[side] !== undefined && focus[side] !== unit;
      button.style.background = isDim ? "" : background;
      button.style.color = isDim ? "" : inkOn(background);
      button.classList.toggle("chosen", focus?.[side] === unit);
      button.classList.toggle("dim", isDim);
      button.setAttribute("aria-pressed", String(view.selected?.[side] === unit));
    });
  }

  private overBand(event: PointerEvent): void {
    const { first, second } = (event.target as SVGElement).dataset;
    if (first !== undefined && second !== undefined)
      this.actions.hover({ first: Number(first), second: Number(second) });
  }

  /** One token of a text can be reached by Tab: the last one that had the focus. */
  private focused(side: SideName, unit: number): void {
    this.buttons[side].forEach((button, index) => {
      button.tabIndex = index === unit ? 0 : -1;
    });
    // A click focuses as well, and the pointer is there already.
    if (this.buttons[side][unit]!.matches(":focus-visible")) this.actions.hover({ [side]: unit });
  }

  private typed(event: KeyboardEvent): void {
    const side = SIDES.find((one) => this.buttons[one].includes(event.target as HTMLButtonElement));
    if (!side || !this.at || event.ctrlKey || event.metaKey || event.altKey) return;
    const unit = this.buttons[side].indexOf(event.target as HTMLButtonElement);
    const next = this.nextOf(event.key, side, unit);
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    next.focus();
  }

  private nextOf(key: string, side: SideName, unit: number): HTMLButtonElement | undefined {
    const buttons = this.buttons[side];
    const last = buttons.length - 1;
    const steps: Record<string, number> = { ArrowLeft: unit - 1, ArrowRight: unit + 1, Home: 0, End: last };
    const step = steps[key];
    if (step !== undefined) return buttons[Math.min(last, Math.max(0, step))];
    if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
    // To the other text: to the strongest partner, which is what one looks for.
    const { table } = this.view!.account;
    const other = otherSide(side);
    const values = table ? partnersOf(table, side, unit) : [];
    return this.buttons[other][indexOfLargest(values)] ?? this.buttons[other][0];
  }
}

function indexOfLargest(values: ArrayLike<number>): number {
  let best = 0;
  for (let at = 1; at < values.length; at++) if (Math.abs(values[at]!) > Math.abs(values[best]!)) best = at;
  return best;
}

/** The pairs that are drawn and, of a token in focus, its largest ones. */
function withPartners({ account, pairs }: SimilarityView, focus: Focus): Pair[] {
  const side = SIDES.find((one) => focus[one] !== undefined);
  if (!account.table || side === undefined) return pairs;
  if (focus.first !== undefined && focus.second !== undefined) {
    const { first, second } = focus;
    const value = account.table.values[first * account.table.columns + second]!;
    return merged(pairs, [{ first, second, value }]);
  }
  const unit = focus[side]!;
  const own = [...partnersOf(account.table, side, unit)]
    .map(
      (value, partner): Pair =>
        side === "first" ? { first: unit, second: partner, value } : { first: partner, second: unit, value },
    )
    .sort((one, other) => Math.abs(other.value) - Math.abs(one.value))
    .slice(0, MOST_PARTNERS);
  return merged(pairs, own);
}

function merged(pairs: readonly Pair[], more: readonly Pair[]): Pair[] {
  const known = new Set(pairs.map(({ first, second }) => `${first}/${second}`));
  return [...pairs, ...more.filter(({ first, second }) => !known.has(`${first}/${second}`))];
}

/** A token for a screen reader: what it does, and with which others most. */
function spoken({ lines, table }: Account, side: SideName, unit: number): string {
  const { units, shares } = lines[side];
  const own = `${shortLabel(units.shown[unit]!, 60)}: ${format.signed(shares[unit]!)}`;
  if (!table) return own;
  const others = lines[otherSide(side)].units;
  const partners = [...partnersOf(table, side, unit)]
    .map((value, partner) => ({ value, partner }))
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, MOST_NAMED)
    .map(({ value, partner }) => `${shortLabel(others.shown[partner]!, 60)} ${format.signed(value)}`);
  return `${own}. With ${partners.join(", ")}`;
}
