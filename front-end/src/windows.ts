/** A long result: the whole in blocks, or a window of it, in an explorer of its own below a small map of all. */
import { h } from "./draw/dom";
import { inkOf } from "./draw/ink";
import { mountExplorer } from "./explorer";
import type { Host } from "./hosts/host";
import { Lifetime } from "./lifetime";
import { decodeAnalysis } from "./model/analysis";
import { Pane } from "./model/pane";
import type { Payload } from "./model/payload";
import { initialState, parseState, type State } from "./model/state";
import { formatPlace, type Place, parsePlace, type WindowFacts, withoutPlace } from "./model/window";
import { Navigator } from "./panels/navigator";

/** Show a long result in an element, until the function that this gives is called. */
export async function mountWindows(root: HTMLElement, whole: Payload, host: Host): Promise<() => void> {
  const pane = new Pane(0, await decodeAnalysis(whole.analyses[0]!), null);
  const windows = new Windows(root, { whole, pane, facts: whole.windows! }, host);
  await windows.open(parsePlace(host.readState(), whole.windows!));
  return () => windows.dispose();
}

interface Whole {
  whole: Payload;
  pane: Pane;
  facts: WindowFacts;
}

class Windows {
  private readonly life = new Lifetime();
  private readonly navigator: Navigator;
  private readonly holder = h("div", { class: "root inner" });
  private readonly initial: State;
  private place: Place | null = null;
  private asked = 0;
  /** Clears away the explorer that is shown. */
  private close: () => void = () => undefined;

  constructor(
    private readonly root: HTMLElement,
    private readonly long: Whole,
    private readonly host: Host,
  ) {
    this.initial = initialState(long.pane.analysis);
    this.navigator = new Navigator(long.pane, long.facts, host.window ? (place) => void this.go(place) : null);
    root.replaceChildren();
    root.classList.add("windows");
    this.navigator.mount(root);
    root.append(this.holder);
    const unsubscribe = host.onState?.((fragment) => void this.follow(fragment));
    if (unsubscribe) this.life.atEnd(unsubscribe);
  }

  dispose(): void {
    this.life.end();
    this.close();
    this.navigator.dispose();
    this.root.replaceChildren();
  }

  /** Show a window, or the whole (null); what was asked for later wins. */
  async open(place: Place | null): Promise<void> {
    const asked = ++this.asked;
    this.navigator.say("Reading\u2026");
    try {
      const payload = place && this.host.window ? await this.host.window(place) : this.long.whole;
      if (asked !== this.asked || this.life.over) return;
      this.place = this.host.window ? place : null;
      this.close();
      this.close = await mountExplorer(this.holder, payload, this.inner());
      this.show(withoutPlace(this.host.readState()));
    } catch (error) {
      this.navigator.say(error instanceof Error ? error.message : String(error));
    }
  }

  /** Go to another window, where other tokens are chosen, if any. */
  private async go(place: Place | null): Promise<void> {
    const query = new URLSearchParams(withoutPlace(this.host.readState()));
    query.delete("query");
    query.delete("key");
    this.host.writeState(formatPlace(place, query.toString()));
    await this.open(place);
  }

  private async follow(fragment: string): Promise<void> {
    const place = parsePlace(fragment, this.long.facts);
    if (JSON.stringify(place) !== JSON.stringify(this.place)) await this.open(place);
  }

  private inner(): Host {
    const { host } = this;
    const { exact: _, ...rest } = host;
    return {
      ...rest,
      readState: () => withoutPlace(host.readState()),
      writeState: (fragment) => {
        host.writeState(formatPlace(this.place, fragment));
        this.show(fragment);
      },
      onState: (listener) => host.onState?.((fragment) => listener(withoutPlace(fragment))) ?? (() => undefined),
      dress: (dark) => {
        this.root.dataset.theme = dark ? "dark" : "light";
        host.dress?.(dark);
      },
    };
  }

  private show(fragment: string): void {
    const state = parseState(fragment, this.initial);
    const dark = this.root.dataset.theme === "dark";
    this.navigator.update({ place: this.place, state, ink: inkOf(this.root), dark });
  }
}
