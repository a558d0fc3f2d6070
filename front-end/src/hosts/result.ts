/** Finished results behind a server of their own: what the page begins with, and the windows of long ones, when asked for. */
import type { Payload } from "../model/payload";
import type { Host } from "./host";

async function fetched<Content>(path: string): Promise<Content> {
  const answer = await fetch(path).catch(() => {
    throw new Error("The server does not answer. Is it still running?");
  });
  const said = (await answer.json()) as Content & { error?: string };
  if (!answer.ok) throw new Error(said.error ?? "The server refused.");
  return said;
}

export function opening(): Promise<Payload> {
  return fetched("/api/result");
}

export function resultHost(addressBar: Host): Host {
  return {
    ...addressBar,
    window: ({ row, column, part }) => fetched(`/api/window?part=${part}&row=${row}&column=${column}`),
  };
}
