/** A prediction to explain: computed by the host, and written into the address, so that links keep it. */

/** A label of a model by its number or name (null: what it predicts), against another label, at a position. */
export interface ExplainRequest {
  label: number | string | null;
  against: string | null;
  at: number | null;
}

export function formatRequest({ label, against, at }: ExplainRequest): string {
  return JSON.stringify([label, against, at]);
}

/** The request of a text; null where it is not one. */
export function parseRequest(text: string): ExplainRequest | null {
  let parts: unknown;
  try {
    parts = JSON.parse(text);
  } catch {
    return null;
  }
  if (!Array.isArray(parts) || parts.length !== 3) return null;
  const [label, against, at] = parts as unknown[];
  const known =
    (label === null || typeof label === "string" || Number.isInteger(label)) &&
    (against === null || typeof against === "string") &&
    (at === null || Number.isInteger(at));
  return known ? ({ label, against, at } as ExplainRequest) : null;
}
