/** The notebook's side of a widget: state in a trait of the model, exact values by message from the kernel. */
import type { Host } from "../model/payload";

export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
  send(content: unknown): void;
}

const PATIENCE = 20_000;

export function widgetHost(model: WidgetModel): Host {
  let asked = 0;
  return {
    readState: () => String(model.get("state") ?? ""),
    writeState: (fragment) => {
      model.set("state", fragment);
      model.save_changes();
    },
    onState: (listener) => model.on("change:state", () => listener(String(model.get("state") ?? ""))),
    exact: (analysis, encoder, scope, layer, head) =>
      new Promise((resolve, reject) => {
        const id = ++asked;
        const answer = (content: { id?: number; error?: string }, buffers: DataView[]): void => {
          if (content.id !== id) return;
          finish();
          const bytes = buffers[0];
          if (content.error !== undefined || !bytes) reject(new Error(content.error ?? "the kernel gave no values"));
          else resolve(new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)));
        };
        const timer = window.setTimeout(() => {
          finish();
          reject(new Error("the kernel does not answer"));
        }, PATIENCE);
        const finish = (): void => {
          window.clearTimeout(timer);
          model.off("msg:custom", answer as never);
        };
        model.on("msg:custom", answer as never);
        model.send({ id, kind: "exact", analysis, encoder, scope, layer, head });
      }),
  };
}
