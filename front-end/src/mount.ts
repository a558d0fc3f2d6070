/** What every entry point shows of a payload: the explorer, or, where the result is too long for it, windows. */
import { mountExplorer } from "./explorer";
import type { Host } from "./hosts/host";
import type { Payload } from "./model/payload";
import { isLong } from "./model/window";
import { mountWindows } from "./windows";

/** Show a payload in an element; returns a function that removes it. */
export function mount(root: HTMLElement, payload: Payload, host: Host): Promise<() => void> {
  return isLong(payload) ? mountWindows(root, payload, host) : mountExplorer(root, payload, host);
}
