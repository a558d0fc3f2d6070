/** The doors: a page with its data inside, a result on a server, the web app, and a notebook widget (for anywidget). */
import { failure } from "./explorer";
import { addressBar, dressDocument } from "./hosts/address";
import type { Host } from "./hosts/host";
import { opening, resultHost } from "./hosts/result";
import { shadow } from "./hosts/shadow";
import { type Settings, WebApp } from "./hosts/webapp";
import { render } from "./hosts/widget";
import type { Payload } from "./model/payload";
import { mount } from "./mount";

async function open(payload: () => Promise<Payload> | Payload, host: Host): Promise<void> {
  dressDocument();
  const root = shadow(document.getElementById("normscope")!);
  try {
    // The page is the explorer: it is never cleared away.
    await mount(root, await payload(), host);
  } catch (error) {
    failure(root, error);
  }
}

function openWebApp(data: HTMLElement): void {
  dressDocument();
  const root = shadow(document.getElementById("normscope")!);
  const dress = (dark: boolean): void => {
    addressBar.dress?.(dark);
    root.dataset.theme = dark ? "dark" : "light";
  };
  const darkly = window.matchMedia("(prefers-color-scheme: dark)");
  // An explorer, once there, has a theme of its own.
  darkly.addEventListener("change", () => {
    if (!root.querySelector(".explorer")) dress(darkly.matches);
  });
  dress(darkly.matches);
  new WebApp(root, JSON.parse(data.textContent ?? "") as Settings, { ...addressBar, dress });
}

const pageData = document.getElementById("normscope-page");
const serverData = document.getElementById("normscope-server");
if (pageData) void open(() => JSON.parse(pageData.textContent ?? "") as Payload, addressBar);
else if (document.getElementById("normscope-result")) void open(opening, resultHost(addressBar));
else if (serverData) openWebApp(serverData);

export default { render };
