/** A finished result behind a server of its own: what the page begins with, and the windows of a long one, when asked for. */
import type { Payload } from "../model/payload";
import type { Host } from "./host";

async function fetched(path: string): Promise<Payload> {
  const answer = await fetch(path).catch(() => {
    throw new Error("The server does not answer. Is it still running?");
  });
  const said = (await answer.json()) as Payload & { error?: string };
  if (!answer.ok) throw new Error(said.error ?? "The server refused.");
  return said;
}

export function opening(): Promise<Payload> {
  return fetched("/api/result");
}

export function resultHost(addressBar: Host): Host {
  return { ...addressBar, window: ({ row, column }) => fetched(`/api/window?row=${row}&column=${column}`) };
}
