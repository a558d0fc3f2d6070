/** The entry points: a page with its data inside, a result on a server, the web app, and a notebook widget (for anywidget). */
import { failure } from "./explorer";
import { addressBar, styleDocument } from "./hosts/address";
import type { Host } from "./hosts/host";
import { loadResult, resultHost } from "./hosts/result";
import { shadow } from "./hosts/shadow";
import { type Settings, WebApp } from "./hosts/webapp";
import { render } from "./hosts/widget";
import type { Payload } from "./model/payload";
import { mount } from "./mount";

async function open(payload: () => Promise<Payload> | Payload, host: Host): Promise<void> {
  styleDocument();
  const root = shadow(document.getElementById("normscope")!);
  try {
    // The page is the explorer: it is never cleared away.
    await mount(root, await payload(), host);
  } catch (error) {
    failure(root, error);
  }
}

function openWebApp(data: HTMLElement): void {
  styleDocument();
  const root = shadow(document.getElementById("normscope")!);
  const applyTheme = (dark: boolean): void => {
    addressBar.applyTheme?.(dark);
    root.dataset.theme = dark ? "dark" : "light";
  };
  const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
  // An explorer, once there, has a theme of its own.
  darkScheme.addEventListener("change", () => {
    if (!root.querySelector(".explorer")) applyTheme(darkScheme.matches);
  });
  applyTheme(darkScheme.matches);
  new WebApp(root, JSON.parse(data.textContent ?? "") as Settings, { ...addressBar, applyTheme });
}

const pageData = document.getElementById("normscope-page");
const serverData = document.getElementById("normscope-server");
if (pageData) void open(() => JSON.parse(pageData.textContent ?? "") as Payload, addressBar);
else if (document.getElementById("normscope-result")) void open(loadResult, resultHost(addressBar));
else if (serverData) openWebApp(serverData);

export default { render };
