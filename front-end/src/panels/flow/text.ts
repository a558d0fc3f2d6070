/** The text itself, every token tinted by its attribution (or patches over their image); a click follows a token. */
import { inkOn } from "../../draw/colour";
import { bdi, h, sized } from "../../draw/dom";
import { eachOf, type FlowView, largest, signs, tint, withoutSinks } from "../../draw/flowview";
import { type Mark, paintMarks } from "../../draw/marks";
import { picture } from "../../draw/picture";
import * as format from "../../model/format";
import type { TokenTable } from "../../model/payload";
import type { Store } from "../../model/store";
import { holdsSink, label, secondText, unitsOf } from "../../model/tokens";
import { Panel } from "../panel";

const SIZE = 300;

interface Shown {
  name: string;
  table: TokenTable;
  values: Float32Array;
  part: "decoder" | "encoder";
}

export class AttributionText extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly box = h("div", { class: "ribbon" });
  private readonly sinks = h(
    "p",
    { class: "hint" },
    "Dashed: an attention sink. It receives much attention whatever its token is, so that its share says little about the word and has no colour.",
  );
  private readonly image = h("canvas", { class: "patches", role: "img" });

  constructor(private readonly store: Store) {
    super();
    this.element = h(
      "section",
      { class: "card" },
      h("header", {}, h("h2", {}, "Attribution"), h("span", { class: "hint" }, "click a token to follow it")),
      this.image,
      this.box,
      this.sinks,
    );
  }

  update(view: FlowView): void {
    const { explanation, targetIndex } = view;
    const [own, source] = explanation.attribution(targetIndex);
    const stacks: Shown[] = [
      { name: "target", table: explanation.stack("decoder").tokens, values: own!, part: "decoder" },
    ];
    if (source)
      stacks.push({ name: "source", table: explanation.stack("encoder").tokens, values: source, part: "encoder" });
    const limit = largest(stacks.flatMap(({ table, values }) => withoutSinks(table, values)));
    this.image.hidden = explanation.picture === null;
    this.box.hidden = explanation.picture !== null;
    this.sinks.hidden = this.box.hidden || !stacks.some(({ table }) => holdsSink(table, [...table.token.keys()]));
    if (explanation.picture) this.drawImage(view, limit);
    else this.box.replaceChildren(...stacks.flatMap((shown) => this.tokens(view, shown, limit, stacks.length > 1)));
  }

  private tokens({ state, dark }: FlowView, shown: Shown, limit: number, named: boolean): (HTMLElement | "")[] {
    const { table, values, part } = shown;
    const units = unitsOf(table, { kind: state.units, special: true });
    const colours = signs(limit, dark);
    let word = -1;
    const buttons = units.texts.map((text, unit) => {
      const members = units.members[unit]!;
      const value = members.reduce((sum, token) => sum + values[token]!, 0);
      const sink = holdsSink(table, members);
      const amount = `${format.signed(value)}${eachOf(value, members)}${sink ? " (attention sink)" : ""}`;
      const background = sink ? "" : tint(value, colours);
      const joined = table.word[members[0]!] !== -1 && table.word[members[0]!] === word;
      word = table.word[members[0]!]!;
      const button = h(
        "button",
        {
          type: "button",
          class: [
            joined && "joined",
            state.units === "sentence" && "sentence",
            sink && "sink",
            part === state.part && members.includes(state.token) && "query",
          ]
            .filter(Boolean)
            .join(" "),
          title: amount,
          "aria-label": `${label(text)}: ${amount}`,
          click: () => this.store.set({ part, depth: 0, token: members[0]! }),
        },
        bdi(label(text).replaceAll("\u00a0", " ")),
      );
      button.style.background = background;
      button.style.color = sink ? "" : inkOn(background);
      return button;
    });
    const second = units.of[secondText(table)] ?? -1;
    const texts: [string, HTMLElement[]][] =
      second < 0
        ? [[named ? shown.name : "", buttons]]
        : [
            ["first text", buttons.slice(0, second)],
            ["second text", buttons.slice(second)],
          ];
    return texts.flatMap(([name, own]) => [
      name && h("span", { class: "group hint" }, name),
      h("div", { class: "tokens attributed" }, ...own),
    ]);
  }

  private drawImage({ explanation, stack, flow, dark, node }: FlowView, limit: number): void {
    const { tokens } = stack;
    const shown = explanation.picture!;
    const height = Math.round((SIZE * shown.height) / shown.width);
    const context = sized(this.image, SIZE, height);
    const rows = Math.max(...(tokens.row ?? [0])) + 1;
    const columns = Math.max(...(tokens.column ?? [0])) + 1;
    const colours = signs(limit, dark);
    const size = { width: SIZE / columns, height: height / rows };
    const patches = [...tokens.token.keys()].flatMap((token): Mark[] => {
      const [row, column] = [tokens.row?.[token] ?? -1, tokens.column?.[token] ?? -1];
      if (row < 0 || column < 0) return [];
      const box = { x: column * size.width, y: row * size.height, ...size };
      const value = flow.relevance[0]![flow.rows.of[token]!]!;
      const opacity = 0.25 + 0.6 * Math.sqrt(Math.abs(value) / (limit || 1));
      const followed = node !== null && flow.rows.of[token] === node.row;
      return [
        { kind: "rect", ...box, fill: tint(value, colours), opacity },
        ...(followed ? [{ kind: "rect", ...box, stroke: "#000000" } as const] : []),
      ];
    });
    const image = { x: 0, y: 0, width: SIZE, height };
    paintMarks(context, [{ kind: "bitmap", ...image, bitmap: picture(shown), smooth: true }, ...patches]);
    this.image.setAttribute("aria-label", `Image of ${rows} by ${columns} patches, tinted by attribution`);
  }
}
