/** The three doors: a page with its data inside, the web app, and a notebook widget (the default export, for anywidget). */
import { failure, mount } from "./explorer";
import { addressBar, dressDocument } from "./hosts/address";
import { shadow } from "./hosts/shadow";
import { type Settings, WebApp } from "./hosts/webapp";
import { render } from "./hosts/widget";
import type { Payload } from "./model/payload";

async function openPage(data: HTMLElement): Promise<void> {
  dressDocument();
  const root = shadow(document.getElementById("normscope")!);
  try {
    // The page is the explorer: it is never cleared away.
    await mount(root, JSON.parse(data.textContent ?? "") as Payload, addressBar);
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
  dress(window.matchMedia("(prefers-color-scheme: dark)").matches);
  new WebApp(root, JSON.parse(data.textContent ?? "") as Settings, { ...addressBar, dress });
}

const pageData = document.getElementById("normscope-page");
const serverData = document.getElementById("normscope-server");
if (pageData) void openPage(pageData);
else if (serverData) openWebApp(serverData);

export default { render };
