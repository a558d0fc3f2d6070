"""A model that can be analysed: facts about it, and the one way to run it.

Everything below `analyzer` takes a `Model`; `Analyzer` adds what can be requested of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope.capture import Side, blocks_of, capture_sides
from normscope.capture.between import watch_outside
from normscope.capture.heads import HeadListener
from normscope.capture.hooks import forward_pass
from normscope.chain.proof import TOLERANCE, Proof
from normscope.errors import listing
from normscope.families import Family
from normscope.families.heads import head_of, made_up
from normscope.families.spec import Config
from normscope.inputs.sequence import Batch, TokenSequence, batches
from normscope.models.checkpoint import non_finite
from normscope.models.devices import entry_device, numbers_of
from normscope.scopes import ENCODER_WHOLE, WHOLE_LAYER, Scope, scopes_of

_version = cache(version)
"""The version of an installed package, whose description is long and read once."""

_SAMPLES = 4096
"""How many evenly spaced values of each tensor go into the weight fingerprint."""


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model with its tokenizer and the description of its architecture.

    The weights may change after loading, so nothing that depends on them is cached.
    """

    module: PreTrainedModel
    """The model itself, as transformers has it."""
    tokenizer: PreTrainedTokenizerBase | None
    """The tokenizer, or `None`: then inputs are token ids."""
    family: Family
    """The description of the architecture: where a block keeps its parts, and in what order they act."""
    name: str
    """The name of the model on the hub, or of its folder."""
    revision: str | None = None
    """The commit on the hub, for a model that came from there."""
    processor: object = None
    """The image processor of a vision model, if it has one."""

    def __post_init__(self) -> None:
        blocks_of(self.module, self.family.stack)  # raise now rather than in the first forward pass

    # ---- what is known -------------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The configuration of the model, as transformers has it."""
        return self.module.config

    @property
    def layers(self) -> list[int]:
        """The layers, numbered from 1."""
        return list(range(1, 1 + self.family.stack.depth(self.config)))

    @property
    def scopes(self) -> list[Scope]:
        """The scopes of the model's blocks, in the order in which their maps grow."""
        return scopes_of(self.family.stack.topology_of(self.config).components())

    @property
    def encoder_scopes(self) -> list[Scope]:
        """The scopes of the encoder's blocks, where there is an encoder."""
        encoder = self.family.encoder
        return [] if encoder is None else scopes_of(encoder.topology_of(self.config).components())

    @property
    def whole_layers(self) -> dict[str, str]:
        """The scope of a whole layer, which every analysis records, and of the encoder's where there is one."""
        encoder = {ENCODER_WHOLE: str(self.encoder_scopes[-1])} if self.encoder_scopes else {}
        return {WHOLE_LAYER: str(self.scopes[-1]), **encoder}

    @property
    def longest(self) -> int | None:
        """The most tokens an input may have, or `None` where nothing limits it."""
        return self.family.longest(self.config)

    @property
    def tolerance(self) -> float:
        """The completeness error above which a result is refused."""
        return TOLERANCE[self.weight_dtype]

    @property
    def proof(self) -> Proof:
        """The check that every trace of the model has to pass."""
        return Proof(self.name, self.family.name, self.weight_dtype)

    @property
    def weight_dtype(self) -> torch.dtype:
        """The dtype in which the model computes."""
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def facts(self) -> dict[str, str | int | float]:
        """The facts about the model that every result records: those of the model as it is now, not as it was loaded."""
        return {
            "model": self.name,
            "model_type": self.config.model_type,
            "family": self.family.name,
            **({} if self.family.stage is None else {"stage": self.family.stage.number}),
            "revision": self.revision or "",
            "fingerprint": self.fingerprint(),
            "dtype": str(self.weight_dtype).removeprefix("torch."),
            "tolerance": self.tolerance,
            "normscope_version": _version("normscope"),
            "torch_version": _version("torch"),
            "transformers_version": _version("transformers"),
        }

    def fingerprint(self) -> str:
        """A hash of every weight's name, shape, dtype and sampled values: equal for equal weights on any device.

        Weights that the checkpoint lacks and only a head would use are initialised at random, and left out.
        Raises `ModelError` where a sampled value of a parameter is not finite.

        Examples:
            >>> analyzer.fingerprint() == analyzer.analyze("A text.").dataset.attrs["fingerprint"]
            True
        """
        digest = hashlib.sha256()
        parameters = {name for name, _ in self.module.named_parameters()}
        for name, tensor in sorted(self.module.state_dict().items()):
            if name in made_up(self.module):
                continue
            flat = numbers_of(self.module, name, tensor).detach().reshape(-1)
            sample = flat[:: max(1, -(-flat.numel() // _SAMPLES))].to("cpu", torch.float64)
            if name in parameters and not bool(sample.isfinite().all()):
                raise non_finite(name, sample)
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(sample.numpy().tobytes())
        return digest.hexdigest()[:16]

    # ---- forward passes ------------------------------------------------------------------------------------------------

    def batches(self, sequences: Sequence[TokenSequence]) -> Iterator[Batch]:
        """Batches of sequences of similar length, padded as this model pads, on the device of its first weights.

        Examples:
            >>> from normscope.inputs import read_inputs
            >>> texts = ["A text.", "Another text."]
            >>> sequences, _ = read_inputs(texts, analyzer.tokenizer, analyzer.longest)
            >>> [batch.lengths for batch in analyzer.batches(sequences)]
            [[5, 5]]
        """
        pad_id = getattr(self.config, "pad_token_id", None) or 0
        return batches(sequences, pad_id, entry_device(self.module), alone=self.family.alone)

    def run(self, batch: Batch, hooks: Callable[[], list[RemovableHandle]] = list, *, head: bool = True) -> Any:
        """The output of the whole model for a batch: in evaluation mode, in the arithmetic of its weights.

        Args:
            batch: what the model reads.
            hooks: registers hooks and returns their handles, which are removed after the pass.
            head: whether the output of the head is needed; if not, its input need not have the head's shape.

        Examples:
            >>> from normscope.inputs import read_inputs
            >>> sequences, _ = read_inputs("A text.", analyzer.tokenizer, analyzer.longest)
            >>> (batch,) = analyzer.batches(sequences)
            >>> analyzer.run(batch, head=False).last_hidden_state.shape  # [sequence, token, d]
            torch.Size([1, 5, 384])
        """
        stacks = [self.family.stack, *([] if self.family.encoder is None else [self.family.encoder])]
        blocks = [block for stack in stacks for block in blocks_of(self.module, stack)]
        with forward_pass(self.module) as handles:
            handles.extend(watch_outside(self.module, blocks))
            handles.extend(hooks())
            return self.module(**self._arguments(batch, head=head), return_dict=True)

    def capture(
        self, batch: Batch, sides: Sequence[Side], *, dtype: torch.dtype, head: HeadListener | None = None
    ) -> None:
        """Runs a batch and hands the traces of the requested layers to each side, and the head's to its listener.

        Examples:
            >>> from normscope.capture import Side
            >>> from normscope.inputs import read_inputs
            >>> sequences, _ = read_inputs("A text.", analyzer.tokenizer, analyzer.longest)
            >>> (batch,) = analyzer.batches(sequences)
            >>> traced = []
            >>> def consume(layer, sequence, trace):
            ...     traced.append(layer)
            >>> side = Side(analyzer.family.stack, batch.lengths, [1, 2], consume)
            >>> analyzer.capture(batch, [side], dtype=analyzer.weight_dtype)
            >>> traced
            [1, 2]
        """
        to_the_end = head is not None and head.head is not None
        reads_head = head is not None and head.head is not None and head.head.task != "states"
        capture_sides(
            self.module,
            self._arguments(batch, head=reads_head),
            sides,
            dtype=dtype,
            below_attention=True,
            head_hooks=None if head is None else head.hook,
            to_the_end=to_the_end,
        )

    def _arguments(self, batch: Batch, *, head: bool) -> dict[str, object]:
        """The keyword arguments of the forward pass. A multiple-choice head reads `[example, choice, token]`."""
        features: dict[str, Tensor] = batch.features
        if head and head_of(self.module).task == "multiple-choice":
            features = {name: tensor[:, None] for name, tensor in features.items()}
        return {**features, **({"use_cache": False} if self.family.stack.causal else {})}

    # ---- shown -----------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        stage = "" if self.family.stage is None else f", {self.family.stage}"
        head = f"{type(self).__name__}({self.name!r}, family={self.family.name!r}, layers={len(self.layers)}{stage})"
        return f"{head}\nscopes: {listing(self.scopes)}"

    def _repr_html_(self) -> str:
        """A small table of facts for notebooks."""
        rows = {
            "model": self.name,
            "architecture": f"{self.config.model_type} (family {self.family.name})",
            "stage": "" if self.family.stage is None else str(self.family.stage).removeprefix("stage "),
            "layers": len(self.layers),
            "scopes": listing(self.scopes),
            "encoder's scopes": listing(self.encoder_scopes),
            "longest input": "" if self.longest is None else f"{self.longest} tokens",
            "weights": f"{str(self.weight_dtype).removeprefix('torch.')}, tolerance {self.tolerance:.0e}",
        }
        left = "style='text-align: left'"
        cells = [
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(value))}</td></tr>"
            for name, value in rows.items()
            if value != ""
        ]
        return f"<table>{''.join(cells)}</table>"
