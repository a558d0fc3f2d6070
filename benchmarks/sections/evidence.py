"""Where evidence is ranked, by the pull-back's rules for attention weights and by other tools, on the rows of a folder.

    python benchmarks/bench.py --section evidence --evidence FOLDER

The rows, their tokens and the measure are those of the experiment `evidence`, contrastive. Other tools have their own
defaults; what is not installed or does not run says so. Where LXT's package cannot be imported with this release of
transformers, its rules for Llama still run: its own code, whose attention is registered with the model's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_args

import numpy as np
import torch
from measuring import Column, Row, Section, spent
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

import normscope as ns
from normscope.corpora.evidence import context_of, read_evidence
from normscope.corpora.record import EvidenceTokens, Problems
from normscope.errors import NormscopeError
from normscope.experiments.faithfulness.evidence import scores
from normscope.options import Weights

MODEL = "smollm2"
ROWS = 100
"""Of each set."""

folder: Path | None = None
"""Files of rows, a set each; `bench.py` sets it."""


@dataclass(frozen=True)
class Asked:
    """One row: the tokens that the model reads, what they are asked about, and the evidence among them."""

    ids: list[int]
    evidence: EvidenceTokens


@dataclass(frozen=True)
class Found:
    """What a tool gives every token, and all that it gives together: tokens, biases, accounts."""

    shares: np.ndarray
    together: float


Tool = Callable[[ns.Analyzer, Asked], Found]


def rows(quick: bool) -> Iterator[Row]:
    if folder is None:
        yield {"what": "evidence", "note": "needs a folder of rows (--evidence FOLDER)"}
        return
    try:
        analyzer = ns.load(MODEL)
    except NormscopeError as error:
        yield {"what": MODEL, "note": str(error)[:80]}
        return
    asked = _asked(analyzer, folder, 2 if quick else ROWS)
    forward = np.mean([spent(lambda each=each: _difference(analyzer, each)) for each in asked[:10]])
    for name, tool in _tools().items():
        try:
            yield _measured(name, tool, analyzer, asked) | {"rows": len(asked)}
        except (ImportError, PackageNotFoundError, AttributeError, TypeError, ValueError) as error:
            said = str(error).partition(" (/")[0]  # without paths of this machine
            yield {"what": name, "note": f"fails here: {type(error).__name__}: {said[:110]}"}
    yield {"what": "a forward pass", "seconds": float(forward)}


def _asked(analyzer: ns.Analyzer, path: Path, most: int) -> list[Asked]:
    """The first rows of every set whose words differ in a token."""
    tokenizer, counts, found = cast(Any, analyzer.tokenizer), dict[str, int](), list[Asked]()
    for record in read_evidence(path, Problems()):
        assert record.evidence is not None
        assert isinstance(record.text, str)
        counts[record.evidence.collection] = counts.get(record.evidence.collection, 0) + 1
        context = context_of(tokenizer, record.text, record.evidence)
        if counts[record.evidence.collection] <= most and not isinstance(context, str):
            found.append(Asked(*context))
    return found


def _measured(name: str, tool: Tool, analyzer: ns.Analyzer, asked: Sequence[Asked]) -> Row:
    """The mean of the sets' mean reciprocal ranks, how far shares are from the value, and the time of a row."""
    ranks, gaps, started = dict[str, list[float]](), list[float](), time.process_time()
    found = [tool(analyzer, each) for each in asked]
    seconds = (time.process_time() - started) / len(asked)
    for each, given in zip(asked, found, strict=True):
        is_evidence = np.zeros(len(each.ids), bool)
        is_evidence[list(each.evidence.places)] = True
        ranks.setdefault(each.evidence.collection, []).append(scores(given.shares, is_evidence)[0])
        value = _difference(analyzer, each)
        gaps.append(abs(given.together - value) / abs(value))
    means = {collection: float(np.mean(values)) for collection, values in ranks.items()}
    sets = " ".join(f"{means[collection]:.2f}" for collection in sorted(means))
    mean = float(np.mean(list(means.values())))
    return {"what": name, "sets": sets, "mean": mean, "gap": float(np.median(gaps)), "seconds": seconds}


@torch.no_grad()
def _difference(analyzer: ns.Analyzer, asked: Asked) -> float:
    logits = analyzer.model(torch.tensor([asked.ids])).logits[0, -1]
    return float(logits[asked.evidence.good] - logits[asked.evidence.bad])


# ---- tools -------------------------------------------------------------------------------------------------------------


def _tools() -> dict[str, Tool]:
    """normscope's rules, and other tools by name with their versions, installed or not."""
    rules = {f'explain, weights="{rule}"': _pulled(rule) for rule in get_args(Weights)}
    return {
        **rules,
        f"LXT {_version('lxt')}, as it comes": _lxt_as_it_comes,
        f"LXT {_version('lxt')}, its rules for Llama": _lxt,
        f"inseq {_version('inseq')}: input_x_gradient": _inseq("input_x_gradient"),
        f"inseq {_version('inseq')}: integrated_gradients": _inseq("integrated_gradients"),
        f"captum {_version('captum')}: input x gradient": _captum,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _pulled(rule: Weights) -> Tool:
    def explained(analyzer: ns.Analyzer, asked: Asked) -> Found:
        found = analyzer.explain(
            {"input_ids": torch.tensor([asked.ids])},
            target=asked.evidence.good,
            against=asked.evidence.bad,
            at=-1,
            weights=rule,
        )
        assert isinstance(found, ns.Explanation)
        together = float(found.attribution.sum()) + float(np.sum(found.bias)) + float(np.sum(found.routed))
        return Found(found.attribution.values.astype(float), together)

    return explained


def _of_embeddings(analyzer: ns.Analyzer, asked: Asked) -> Found:
    """Embeddings times the gradient, as it is or as rules have made it."""
    embedded = analyzer.model.get_input_embeddings()(torch.tensor([asked.ids])).detach().requires_grad_()
    logits = analyzer.model(inputs_embeds=embedded, use_cache=False).logits[0, -1]
    (logits[asked.evidence.good] - logits[asked.evidence.bad]).backward()
    assert embedded.grad is not None
    shares = (embedded * embedded.grad)[0].sum(-1).detach().double().numpy()
    return Found(shares, float(shares.sum()))


def _captum(analyzer: ns.Analyzer, asked: Asked) -> Found:
    attr: Any = import_module("captum.attr")  # only where it is installed
    embedded = analyzer.model.get_input_embeddings()(torch.tensor([asked.ids])).detach().requires_grad_()

    def difference(values: torch.Tensor) -> torch.Tensor:
        logits = analyzer.model(inputs_embeds=values, use_cache=False).logits[:, -1]
        return logits[:, asked.evidence.good] - logits[:, asked.evidence.bad]

    shares = attr.InputXGradient(difference).attribute(embedded)[0].sum(-1).detach().double().numpy()
    return Found(shares, float(shares.sum()))


def _inseq(method: str) -> Tool:
    loaded: dict[int, Any] = {}

    def attributed(analyzer: ns.Analyzer, asked: Asked) -> Found:
        inseq: Any = import_module("inseq")  # only where it is installed
        tokenizer: Any = analyzer.tokenizer
        if not loaded:
            loaded[0] = inseq.load_model(analyzer.model, method, tokenizer=tokenizer)
        texts = [tokenizer.decode(each) for each in _continued(asked)]
        found = loaded[0].attribute(
            *texts[:2],
            attributed_fn="contrast_logits_diff",
            contrast_targets=texts[2],
            show_progress=False,
        )
        shares = np.asarray(found[0].target_attributions.sum(-1), float)[: len(asked.ids), 0]
        return Found(shares, float(shares.sum()))

    return attributed


def _continued(asked: Asked) -> list[list[int]]:
    return [asked.ids, [*asked.ids, asked.evidence.good], [*asked.ids, asked.evidence.bad]]


# ---- LXT ---------------------------------------------------------------------------------------------------------------


def _lxt_as_it_comes(analyzer: ns.Analyzer, asked: Asked) -> Found:
    import_module("lxt.efficient")
    return _lxt(analyzer, asked)


def _lxt(analyzer: ns.Analyzer, asked: Asked) -> Found:
    with _patched(analyzer):
        return _of_embeddings(analyzer, asked)


@contextmanager
def _patched(analyzer: ns.Analyzer) -> Generator[None]:
    """While it lasts, the classes of Llama have LXT's forward passes, and the model's attention is wrapped by LXT."""
    patches: Any = _alone("lxt.efficient.patches")
    llama: Any = import_module("transformers.models.llama.modeling_llama")
    forwards = {
        llama.LlamaMLP: patches.gated_mlp_forward,
        llama.LlamaRMSNorm: patches.rms_norm_forward,
    }
    before = {kind: kind.forward for kind in forwards}
    config: Any = analyzer.model.config
    attention = config._attn_implementation
    AttentionInterface.register("lxt", patches.wrap_attention_forward(sdpa_attention_forward))
    AttentionMaskInterface.register("lxt", sdpa_mask)
    try:
        for kind, forward in forwards.items():
            kind.forward = forward
        config._attn_implementation = "lxt"
        yield
    finally:
        config._attn_implementation = attention
        for kind, forward in before.items():
            kind.forward = forward


def _alone(name: str) -> ModuleType:
    """A module of a package whose `__init__` cannot be run."""
    if name not in sys.modules:
        package = name.rpartition(".")[0]
        if package not in sys.modules:
            bare = ModuleType(package)
            bare.__path__ = [str(distribution("lxt").locate_file(package.replace(".", "/")))]
            sys.modules[package] = bare
    return import_module(name)


SECTION = Section(
    "Where the evidence is ranked (SmolLM2-135M; mean reciprocal rank, contrastive)",
    (
        Column("what", "what"),
        Column("rows", "rows"),
        Column("sets", "by set (anaphor, determiner-noun, distractor, ioi, npi)"),
        Column("mean", "mean of sets", "{:.3f}"),
        Column("gap", "shares are off by (median)", "{:.1e}"),
        Column("seconds", "time of a row", "{:.3f} s"),
        Column("note", "note"),
    ),
    rows,
    drawn="mean",
)
