/** Jobs on the server: sent, followed until they are done, failed or cancelled, and their results. */
import type { Payload } from "../model/payload";
import type { ExactRequest } from "./host";

export interface Status {
  stage: "waiting" | "running" | "done" | "failed" | "cancelled";
  ahead: number;
  begun: number;
  total: number;
  message: string;
}

/** One job; `cancel` may be called at any time. */
export class ServerJob {
  id = "";
  private source: EventSource | null = null;
  private ended = false;
  private reject: (error: Error) => void = () => undefined;

  /** Send it and wait for its result. Rejects with the error message of the server. */
  async run<Found = Payload>(content: unknown, onStatus: (status: Status) => void): Promise<Found> {
    this.id = await this.send(content);
    if (this.ended) {
      this.forget();
      throw new Cancelled();
    }
    await this.follow(onStatus);
    const answer = await fetch(`/api/jobs/${this.id}/result`);
    if (!answer.ok) throw new Error("The server no longer has this analysis. Request it again.");
    return (await answer.json()) as Found;
  }

  cancel(): void {
    if (this.ended) return;
    this.ended = true;
    this.source?.close();
    if (this.id !== "") this.forget();
    this.reject(new Cancelled());
  }

  private forget(): void {
    void fetch(`/api/jobs/${this.id}`, { method: "DELETE" }).catch(() => undefined);
  }

  private async send(content: unknown): Promise<string> {
    const answer = await fetch("/api/jobs", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(content),
    }).catch(() => {
      throw new Error("The server does not respond. Is it still running?");
    });
    const body = (await answer.json()) as { id?: string; error?: string };
    if (!answer.ok || body.id === undefined) throw new Error(body.error ?? "The server rejected the request.");
    return body.id;
  }

  private follow(onStatus: (status: Status) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const source = new EventSource(`/api/jobs/${this.id}/events`);
      const end = (act: () => void): void => {
        this.ended = true;
        source.close();
        act();
      };
      this.source = source;
      this.reject = reject;
      source.addEventListener("message", (event) => {
        const status = JSON.parse(String(event.data)) as Status;
        if (status.stage === "done") end(resolve);
        else if (status.stage === "failed") end(() => reject(new Error(status.message)));
        else if (status.stage === "cancelled") end(() => reject(new Cancelled()));
        else onStatus(status);
      });
      source.addEventListener("error", () => {
        if (source.readyState === EventSource.CLOSED)
          end(() => reject(new Error("The connection to the server was lost.")));
      });
    });
  }
}

export class Cancelled extends Error {
  constructor() {
    super("Cancelled.");
  }
}

export async function exact(id: string, request: ExactRequest): Promise<Float32Array> {
  const query = new URLSearchParams(Object.entries(request).map(([name, value]) => [name, String(value)]));
  const answer = await fetch(`/api/jobs/${id}/exact?${query}`);
  if (!answer.ok) throw new Error("the server no longer has this analysis");
  return new Float32Array(await answer.arrayBuffer());
}
