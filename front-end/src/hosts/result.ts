/** Finished results behind a server of their own: the whole, and windows of long ones on request. */
import type { Payload } from "../model/payload";
import type { Host } from "./host";

async function fetched<Content>(path: string): Promise<Content> {
  const answer = await fetch(path).catch(() => {
    throw new Error("The server does not respond. Is it still running?");
  });
  const body = (await answer.json()) as Content & { error?: string };
  if (!answer.ok) throw new Error(body.error ?? "The server rejected the request.");
  return body;
}

export function loadResult(): Promise<Payload> {
  return fetched("/api/result");
}

export function resultHost(addressBar: Host): Host {
  return {
    ...addressBar,
    window: ({ row, column, part }) => fetched(`/api/window?part=${part}&row=${row}&column=${column}`),
  };
}
