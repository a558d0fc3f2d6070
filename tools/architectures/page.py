def line(t):
    return f"{t.task:16} {t.class_name:40} {t.outcome:10} {'' if t.error is None else format(t.error, '.1e')} {t.reason.replace(chr(10), ' ')[:200]}"


def faults(results):
    return [f"{m}: {line(t)}" for m, ts in results.items() for t in ts if t.outcome in ("wrong", "crashed")]


def counts(results):
    out = []
    for task in ("causal", "masked", "encoder-decoder", "image"):
        ts = [t for r in results.values() for t in r if t.task == task]
        b = [t for t in ts if t.outcome != "not built"]
        a = [t for t in b if t.outcome == "analysed"]
        out.append(f"{task}: {len(a)} of {len(b)} built ({len(ts)} listed) {100 * len(a) / len(b):.0f} %")
    return "\n".join(out)


def unknown(results):
    return []


def write(results):
    pass
