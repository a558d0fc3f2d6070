/** What a scope adds to the one before it, in words: the steps of the chain that the stepper walks. */

const NAMES: Record<string, string> = {
  Attn: "attention",
  Cross: "cross-attention",
  Res: "residual",
  Ln: "norm",
  Ff: "feed-forward",
};

export interface Step {
  scope: string;
  /** What happens here: "weights", "+ residual". */
  title: string;
}

function components(chain: string): string[] {
  return chain.match(/[A-Z][a-z0-9]*/gu) ?? [];
}

export function stepsOf(scopes: readonly string[]): Step[] {
  let before = "";
  return scopes.map((scope) => {
    if (scope.endsWith("W")) return { scope, title: scope.startsWith("Cross") ? "cross weights" : "weights" };
    const added = scope.startsWith(before) ? scope.slice(before.length) : scope;
    const names = components(added).map((name) => NAMES[name] ?? name);
    const title = before === "" && names.length === 1 ? `${names[0]} norm` : `+ ${names.join(" + ")}`;
    before = scope;
    return { scope, title: title.replace("attention norm", "\u00d7 values") };
  });
}

/** What a cell measures at a scope. */
export function quantity(scope: string, norm: string): string {
  if (norm === "row") return "share of the query\u2019s row";
  if (norm === "column") return "share of the key\u2019s column";
  return scope.endsWith("W") ? "attention weight" : "norm of the part";
}
