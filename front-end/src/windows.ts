/** Long results: the whole in blocks, or a window of it, in an explorer of its own below a small map of all. */
import { h } from "./draw/dom";
import { inkOf } from "./draw/ink";
import { mountExplorer, panesOf } from "./explorer";
import type { Host } from "./hosts/host";
import { Lifetime } from "./lifetime";
import { decodeAnalysis } from "./model/analysis";
import type { Pane } from "./model/pane";
import type { Payload } from "./model/payload";
import { initialState, parseState, type State } from "./model/state";
import {
  blockAt,
  factsOf,
  formatStart,
  longest,
  nextToken,
  parseStart,
  startAround,
  type WindowFacts,
  type WindowStart,
  withoutStart,
  withWindow,
} from "./model/window";
import { Navigator } from "./panels/navigator";
import { runShortcut } from "./shortcuts";

/** Show long results in an element; returns a function that removes them. */
export async function mountWindows(root: HTMLElement, whole: Payload, host: Host): Promise<() => void> {
  const panes = panesOf(await Promise.all(whole.analyses.map(decodeAnalysis)));
  const windows = new Windows(root, whole, panes, host);
  await windows.open(windows.startIn(host.readState()));
  return () => windows.dispose();
}

/** A token to choose once a window is there, by its index among all queries, and all keys (-1: none). */
interface Token {
  query: number;
  key: number;
}

class Windows {
  private readonly lifetime = new Lifetime();
  private readonly navigator: Navigator;
  private readonly holder = h("div", { class: "root inner" });
  private readonly initial: State;
  private start: WindowStart | null = null;
  private part: State["part"];
  private requests = 0;
  /** The key that was found last. */
  private found = -1;
  /** Removes the explorer that is shown. */
  private close: () => void = () => undefined;

  constructor(
    private readonly root: HTMLElement,
    private readonly whole: Payload,
    panes: readonly Pane[],
    private readonly host: Host,
  ) {
    this.initial = initialState(panes[0]!.analysis);
    this.part = this.stateIn(host.readState()).part;
    const actions = {
      show: (start: WindowStart | null) => void this.go(start),
      toggle: () => this.inside(),
      find: (text: string) => this.find(text),
    };
    this.navigator = new Navigator(panes, host.window ? actions : null);
    root.replaceChildren(this.navigator.element, this.holder);
    root.classList.add("windows");
    const unsubscribe = host.onState?.((fragment) => void this.follow(fragment));
    if (unsubscribe) this.lifetime.onEnd(unsubscribe);
    const keys = {
      keys: "g",
      description: "zoom in to the chosen cell, and back",
      actions: { g: () => this.inside() },
    };
    this.lifetime.listen<KeyboardEvent>(host.alone ? document : root, "keydown", (event) => runShortcut([keys], event));
  }

  dispose(): void {
    this.lifetime.end();
    this.close();
    this.navigator.dispose();
    this.root.replaceChildren();
  }

  /** The window that a fragment names; null where none of what it shows is long. */
  startIn(fragment: string): WindowStart | null {
    const facts = longest(factsOf(this.whole, this.stateIn(fragment).part));
    return facts && this.host.window ? parseStart(fragment, facts) : null;
  }

  /** Show a window, or the whole (null), and a token of it; a later request wins. */
  async open(start: WindowStart | null, token: Token | null = null): Promise<void> {
    const request = ++this.requests;
    this.navigator.report("Loading\u2026");
    try {
      const payload = await this.read(start);
      if (request !== this.requests || this.lifetime.ended) return;
      this.start = start;
      if (token) this.choose(payload, token);
      this.close();
      this.close = () => undefined;
      const { layer, scope } = this.initial;
      const close = await mountExplorer(this.holder, payload, this.inner(), { layer, scope });
      if (request !== this.requests || this.lifetime.ended) return close();
      this.close = close;
      this.show(withoutStart(this.host.readState()));
    } catch (error) {
      this.navigator.report(error instanceof Error ? error.message : String(error));
    }
  }

  private async read(start: WindowStart | null): Promise<Payload> {
    if (!start || !this.host.window) return this.whole;
    const { part } = this;
    return withWindow(this.whole, await this.host.window({ ...start, part }), part);
  }

  private get facts(): WindowFacts | null {
    return longest(factsOf(this.whole, this.part));
  }

  private stateIn(fragment: string): State {
    return parseState(fragment, this.initial);
  }

  /** Go to another window, where other tokens are chosen, if any. */
  private async go(start: WindowStart | null, token: Token | null = null): Promise<void> {
    const query = new URLSearchParams(withoutStart(this.host.readState()));
    query.delete("query");
    query.delete("key");
    this.host.writeState(formatStart(start, query.toString()));
    await this.open(start, token);
  }

  /** Write into the address which of the tokens of a window are chosen. */
  private choose(payload: Payload, { query, key }: Token): void {
    const at = factsOf(payload, this.part).find((facts) => facts?.place)?.place;
    if (!at) return;
    const state = new URLSearchParams(this.host.readState());
    if (query >= 0) state.set("query", String(query - at.row));
    if (key >= 0) state.set("key", String(at.before + key - at.column));
    this.host.writeState(state.toString());
  }

  /** From the whole to the window around the chosen cell, from a window to the whole. */
  private inside(): void {
    const { facts } = this;
    if (!facts || !this.host.window) return;
    if (this.start) {
      void this.go(null);
      return;
    }
    const index = factsOf(this.whole, this.part).findIndex((one) => one !== null);
    const analysis = this.whole.analyses[index]!;
    const { queries, keys } = this.part === "encoder" ? (analysis.encoder ?? analysis) : analysis;
    const state = this.stateIn(withoutStart(this.host.readState()));
    const middle = ({ first, tokens }: { first: number; tokens: number }): number => first + Math.floor(tokens / 2);
    const query = middle(blockAt(queries, state.query));
    const key = state.key < 0 ? query : middle(blockAt(keys, state.key));
    void this.go(startAround(query, key, facts));
  }

  /** Go to the next token with some letters in it: to its row, or, where it is read from a source, to its column. */
  private find(text: string): void {
    const { facts } = this;
    if (!facts) return;
    this.found = nextToken(facts, text, this.found);
    if (this.found < 0) {
      this.navigator.report(`${text.trim()} does not occur in this text.`);
      return;
    }
    const whole = facts.queries === (facts.source ?? facts.keys);
    const isQuery = whole && this.found < facts.queries;
    const start = startAround(this.found, this.found, facts);
    const row = isQuery ? start.row : (this.start?.row ?? 0);
    void this.go({ ...start, row }, { query: isQuery ? this.found : -1, key: isQuery ? -1 : this.found });
  }

  private async follow(fragment: string): Promise<void> {
    this.part = this.stateIn(fragment).part;
    const start = this.startIn(fragment);
    if (JSON.stringify(start) !== JSON.stringify(this.start)) await this.open(start);
  }

  private inner(): Host {
    const { host } = this;
    const { exact: _, ...rest } = host;
    return {
      ...rest,
      readState: () => withoutStart(host.readState()),
      writeState: (fragment) => this.written(fragment),
      onState: (listener) => host.onState?.((fragment) => listener(withoutStart(fragment))) ?? (() => undefined),
      applyTheme: (dark) => {
        this.root.dataset.theme = dark ? "dark" : "light";
        host.applyTheme?.(dark);
      },
    };
  }

  /** What the explorer looks at has changed. The other stack has other tokens, and is shown whole at first. */
  private written(fragment: string): void {
    const { part } = this.stateIn(fragment);
    const other = part !== this.part;
    this.part = part;
    this.host.writeState(formatStart(other ? null : this.start, fragment));
    if (other && this.start) void this.go(null);
    else this.show(fragment);
  }

  private show(fragment: string): void {
    const dark = this.root.dataset.theme === "dark";
    const facts = factsOf(this.whole, this.part);
    this.navigator.update({
      start: this.start,
      facts,
      state: this.stateIn(fragment),
      ink: inkOf(this.root),
      dark,
    });
  }
}
