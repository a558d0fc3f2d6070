/** The flow graph on the page: nodes and edges to point at, a node to follow by click or keys. */
import { bdi, h } from "../../draw/dom";
import { type FlowDrawing, flowDrawing, LABEL_SIZE, nodeTitle, TARGET_LENGTH } from "../../draw/flowmarks";
import type { FlowView } from "../../draw/flowview";
import { type Mark, svgDocument, textWidth } from "../../draw/marks";
import { type Streams, streams } from "../../draw/streams";
import { type FlowNode, followed, touching } from "../../model/flow";
import * as format from "../../model/format";
import { clamp } from "../../model/state";
import type { Store } from "../../model/store";
import { cut, isolated, phrase, shortLabel } from "../../model/tokens";
import { Panel } from "../panel";

/** Pixels of the window that everything above and below the graph takes. */
const CHROME = 190;
const SMALLEST_HEIGHT = 420;
const SMALLEST_COLUMN = 5;
/** Room for the names of the lines below the graph. */
const SMALLEST_LABEL = 74;
const DIMMED = 0.08;

export class FlowGraph extends Panel<FlowView> {
  readonly element: HTMLElement;
  private readonly holder = h("div", { class: "flow-graph", tabindex: 0, role: "application" });
  private readonly tooltip = h("div", { class: "tooltip", hidden: true });
  private readonly none = h("p", { class: "note" });
  private view: FlowView | null = null;
  private at: Streams | null = null;
  private drawn: FlowDrawing | null = null;
  /** In the order of the flow's edges. */
  private bands: SVGElement[] = [];
  private drawnWidth = 0;

  constructor(private readonly store: Store) {
    super();
    this.element = h("div", { class: "flow-view" }, this.holder, this.none, this.tooltip);
    this.holder.setAttribute("aria-roledescription", "flow graph");
    this.holder.addEventListener("pointermove", (event) => this.moved(event));
    this.holder.addEventListener("pointerleave", () => this.rest());
    this.holder.addEventListener("click", (event) => this.clicked(event));
    this.holder.addEventListener("keydown", (event) => this.typed(event));
    this.lifetime.observeSize(this.element, () => {
      if (this.view && Math.abs(this.element.clientWidth - this.drawnWidth) > 1) this.update(this.view);
    });
  }

  /** The graph as it is shown now: edges that do not touch the followed node are dimmed. */
  get drawing(): FlowDrawing {
    const { marks, ...size } = this.drawn!;
    const { view } = this;
    const parts = view?.node ? followed(view.flow, view.node) : null;
    return { ...size, marks: parts ? marks.map((mark) => dimmed(mark, parts)) : marks };
  }

  update(view: FlowView): void {
    this.view = view;
    this.none.hidden = view.stack.followed;
    this.holder.hidden = !view.stack.followed;
    this.none.textContent = `The method ${view.explanation.method} attributes a value to the input tokens, but does not follow it through the layers.`;
    if (!view.stack.followed || this.element.clientWidth === 0) return;
    this.drawnWidth = this.element.clientWidth;
    const labels = Math.max(SMALLEST_LABEL, this.widest(view.flow.rows.shown.map((text) => shortLabel(text))));
    const target = this.widest([cut(phrase(view.target.name), TARGET_LENGTH), format.signed(view.target.value)]);
    this.at = streams(view.flow, {
      width: Math.max(labels + target + SMALLEST_COLUMN * view.flow.relevance.length, this.drawnWidth),
      height: Math.max(SMALLEST_HEIGHT, window.innerHeight - CHROME),
      labels,
      target,
    });
    this.drawn = flowDrawing(view, this.at);
    const svg = svgDocument(this.drawn.marks, this.drawn.width, this.drawn.height);
    this.bands = [];
    for (const band of svg.querySelectorAll<SVGElement>(".band")) this.bands[Number(band.dataset.edge)] = band;
    this.holder.replaceChildren(svg);
    this.holder.setAttribute("aria-label", describe(view));
    this.holder.dataset.drawn = String(view.flow.edges.length);
    this.rest();
  }

  private widest(texts: string[]): number {
    return Math.max(...texts.map((text) => textWidth(isolated(text), { size: LABEL_SIZE, weight: 600 })));
  }

  /** Show the edges of the node that is followed, or all. */
  private rest(): void {
    this.tooltip.hidden = true;
    const { view } = this;
    if (!view) return;
    this.light(view.node ? followed(view.flow, view.node) : null);
  }

  /** How much of each edge is lit, from 0 to 1; all of everything without. */
  private light(parts: Float32Array | null): void {
    const stubs = this.holder.querySelector<SVGElement>(".stubs");
    if (stubs) stubs.style.opacity = parts ? String(DIMMED) : "";
    this.bands.forEach((band, index) => {
      const opacity = parts ? brightness(parts[index] ?? 0) : 1;
      band.style.opacity = opacity >= 1 ? "" : String(opacity);
    });
  }

  private nodeOf(target: EventTarget | null): FlowNode | null {
    const { depth, row } = (target as SVGElement | null)?.dataset ?? {};
    return depth === undefined || row === undefined ? null : { depth: Number(depth), row: Number(row) };
  }

  private moved(event: PointerEvent): void {
    const { view } = this;
    if (!view) return;
    const node = this.nodeOf(event.target);
    const index = (event.target as SVGElement).dataset?.edge;
    if (node) {
      this.light(
        Float32Array.from(view.flow.edges, ({ layer, from, to }) =>
          (layer === node.depth && to === node.row) || (layer === node.depth + 1 && from === node.row) ? 1 : 0,
        ),
      );
      this.showTooltip(event, ...this.nodeLines(view, node));
    } else if (index === undefined) this.rest();
    else {
      this.rest();
      this.showTooltip(event, ...this.edgeLines(view, Number(index)));
    }
  }

  private nodeLines(view: FlowView, node: FlowNode): Node[] {
    const { flow } = view;
    const { depth, row } = node;
    const { into, out } = touching(flow, node);
    const name = (at: number): HTMLElement => bdi(shortLabel(flow.rows.shown[at]!, 24));
    const lines = [h("strong", {}, bdi(nodeTitle(view, depth, row)))];
    const line = (title: string, value: number): void => {
      lines.push(h("span", {}, `${title} ${format.signed(value)}`));
    };
    line("relevance", flow.relevance[depth]![row]!);
    if (depth > 0 && row < flow.own) {
      line("through its feed-forward", flow.feedForward[depth - 1]![row]!);
      if (flow.bias[depth - 1]![row] !== 0) line("from biases", flow.bias[depth - 1]![row]!);
    }
    for (const { from, value } of into.slice(0, 3)) {
      lines.push(h("span", {}, "\u2190 ", name(from), ` ${format.signed(value)}`));
    }
    if (flow.rest.into[depth]![row] !== 0) line("\u2190 sum of smaller edges", flow.rest.into[depth]![row]!);
    for (const { to, value } of out.slice(0, 3))
      lines.push(h("span", {}, "\u2192 ", name(to), ` ${format.signed(value)}`));
    if (flow.rest.out[depth]![row] !== 0) line("\u2192 sum of smaller edges", flow.rest.out[depth]![row]!);
    return lines;
  }

  private edgeLines({ flow }: FlowView, index: number): Node[] {
    const { layer, from, to, value } = flow.edges[index]!;
    const name = (at: number): HTMLElement => bdi(shortLabel(flow.rows.shown[at]!, 24));
    return [
      h("strong", {}, name(from), " \u2192 ", name(to)),
      h("span", {}, `${format.signed(value)} through layer ${layer}`),
    ];
  }

  private showTooltip(event: PointerEvent, ...lines: Node[]): void {
    const frame = this.element.getBoundingClientRect();
    this.tooltip.replaceChildren(...lines);
    this.tooltip.hidden = false;
    const [x, y] = [event.clientX - frame.x, event.clientY - frame.y];
    this.tooltip.style.left = `${Math.min(x + 14, this.element.clientWidth - this.tooltip.offsetWidth)}px`;
    this.tooltip.style.top = `${y + 16}px`;
  }

  private clicked(event: MouseEvent): void {
    const node = this.nodeOf(event.target);
    const { view } = this;
    if (!view || !node) return;
    const same = view.node?.depth === node.depth && view.node.row === node.row;
    this.follow(same ? null : node);
  }

  private follow(node: FlowNode | null): void {
    const token = node ? (this.view!.flow.rows.members[node.row]?.[0] ?? -1) : -1;
    this.store.set({ depth: node?.depth ?? -1, token });
  }

  private typed(event: KeyboardEvent): void {
    const { view } = this;
    const steps: Record<string, [number, number]> = {
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
    };
    const step = steps[event.key];
    if (!view || event.ctrlKey || event.metaKey || event.altKey || (!step && event.key !== "Escape")) return;
    event.preventDefault();
    event.stopPropagation();
    if (!step) {
      this.follow(null);
      return;
    }
    const end = view.stack.tokens.position.indexOf(view.target.position);
    const start = view.node ?? { depth: view.flow.layers - step[0], row: (view.flow.rows.of[end] ?? 0) - step[1] };
    this.follow({
      depth: clamp(start.depth + step[0], 0, view.flow.layers),
      row: clamp(start.row + step[1], 0, view.flow.rows.shown.length - 1),
    });
  }
}

/** How bright an edge is of which a part is lit. */
function brightness(part: number): number {
  if (part >= 1) return 1;
  return part < 0.01 ? DIMMED : Math.max(DIMMED, Math.min(1, 0.15 + 1.4 * part));
}

/** A mark with its edges as bright as the parts of them that are lit. */
function dimmed(mark: Mark, parts: Float32Array): Mark {
  if (mark.kind === "group") return { ...mark, marks: mark.marks.map((inner) => dimmed(inner, parts)) };
  if (mark.kind !== "path" || mark.opacity === undefined) return mark;
  const edge = mark.data?.edge;
  const bright = edge === undefined ? DIMMED : brightness(parts[Number(edge)] ?? 0);
  return { ...mark, opacity: mark.opacity * bright };
}

/** The graph for a screen reader. */
function describe({ flow, target }: FlowView): string {
  const size = `${flow.rows.shown.length} tokens through ${flow.layers} layers, ${flow.edges.length} edges`;
  return `Flow to ${phrase(target.name)}: ${size}. Arrow keys choose a node to follow, Escape shows all again.`;
}
