/** What every entry point shows of a payload: an answer, similarities, the explorer, or, for results too long for it, windows. */
import { mountAnswer } from "./answers";
import { mountExplorer } from "./explorer";
import type { Host } from "./hosts/host";
import type { Payload } from "./model/payload";
import { isLong } from "./model/window";
import { mountSimilarities } from "./similarities";
import { mountWindows } from "./windows";

/** Show a payload in an element; returns a function that removes it. */
export function mount(root: HTMLElement, payload: Payload, host: Host): Promise<() => void> {
  if (payload.answer) return mountAnswer(root, payload.answer, host);
  if (payload.similarities && payload.similarities.length > 0) return mountSimilarities(root, payload, host);
  return isLong(payload) ? mountWindows(root, payload, host) : mountExplorer(root, payload, host, payload.start);
}
