"""The task heads normscope knows, by the names of the model classes that have them; this is where they are looked up.

Other packages add theirs by calling `register_head`. Weights of a head that a checkpoint lacks are drawn at random by
transformers, and no prediction should be about them: they are noted when a model is loaded, which needs no head, and refused
by name as soon as its head is requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from normscope.errors import HeadError, few, listing
from normscope.families.heads import decoders, encoder_decoders, encoders, multimodal, sounds
from normscope.families.heads.encoder_decoders import ENCODER_ENDS
from normscope.families.heads.spec import LANGUAGE_MODELLING, DescribedHead, Head, HeadPart, LinearPart
from normscope.families.spec import Family, LayerNormPart, NormPart, RmsNormPart, UnitRmsNormPart

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "Head",
    "encoder_end",
    "head_of",
    "heads",
    "is_bare",
    "labels_of",
    "made_up",
    "note_head",
    "note_weights_lacking",
    "refuse_made_up_head",
    "register_head",
    "states_head",
]

_BY_CLASS: dict[str, DescribedHead] = {}


def register_head(head: DescribedHead, *class_names: str) -> DescribedHead:
    """Make a head known for model classes of these names and their subclasses; a later one replaces an earlier one.

    Examples:
        >>> import normscope as ns
        >>> from normscope.families.heads.spec import Head, LinearPart, TokenAt
        >>> head = Head(task="sequence-classification", parts=(TokenAt(0), LinearPart("classifier")))
        >>> ns.register_head(head, "MyBertForSequenceClassification") is head
        True
    """
    for name in class_names:
        _BY_CLASS[name] = head
    return head


def heads() -> dict[str, DescribedHead]:
    """Every model class whose head is described."""
    return dict(sorted(_BY_CLASS.items()))


def head_of(model: PreTrainedModel) -> Head:
    """The head of a model; raises where it has none, or one that is not known, saying how to describe it.

    Also raises where the model was loaded from a checkpoint that lacks weights of its head.
    """
    head = _described(model)
    if head is not None:
        refuse_lacking(model, head)
        return head
    name = type(model).__name__
    if is_bare(model):
        raise HeadError(
            f"{name} is a bare model: it has no task head, and so no logits to explain. Load it with one "
            f"(AutoModelForMaskedLM, AutoModelForCausalLM, AutoModelForSequenceClassification, ...)."
        )
    parts = [f"{path} ({type(module).__name__})" for path, module in model.named_children()]
    raise HeadError(
        f"The task head of {name} is not described: no head is registered for this class. It has {listing(parts)}. "
        f"Describe what acts between its last block and its logits in a normscope.families.heads.Head, pass it to "
        f"normscope.register_head(head, {name!r}) and check it with normscope.testing.assert_head()."
    )


def is_bare(model: PreTrainedModel) -> bool:
    """Whether a model has no task head at all."""
    return model.base_model is model and _described(model) is None


def note_weights_lacking(model: PreTrainedModel, missing: Iterable[str]) -> list[str]:
    """Of the weights that a model's checkpoint lacks, those that are not of its head; the others are remembered for it."""
    head, names = _described(model), set(missing)
    of_head = {name for name in names if is_of_head(model, head, name)}
    note_lacking(model, of_head)
    return sorted(names - of_head)


def refuse_made_up_head(model: PreTrainedModel) -> None:
    """Refuse to let a model predict by weights that its checkpoint lacks."""
    refuse_lacking(model, _described(model))


_of_models: WeakKeyDictionary[object, Head] = WeakKeyDictionary()
"""Heads of single models, which were found by looking at them."""


def note_head(model: PreTrainedModel, head: Head) -> None:
    """Make the head of one model known, and not that of others of its class."""
    _of_models[model] = head


def _described(model: PreTrainedModel) -> Head | None:
    if model in _of_models:
        return _of_models[model]
    for ancestor in type(model).__mro__:
        described = _BY_CLASS.get(ancestor.__name__)
        if described is not None:
            return described if isinstance(described, Head) else described(model.config)
    return None


def labels_of(model: PreTrainedModel) -> tuple[str, ...] | None:
    """The names of the labels of a model's logits; `None` for a language model, whose labels are token ids."""
    head = head_of(model)
    if head.task in LANGUAGE_MODELLING:
        return None
    if head.labels is not None:
        return head.labels
    return tuple(str(name) for _, name in sorted((model.config.id2label or {}).items(), key=lambda item: int(item[0])))


def encoder_end(family: Family) -> tuple[HeadPart, ...]:
    """What acts between the last block of a family's encoder and the states that its decoder reads."""
    parts = ENCODER_ENDS.get(family.name)
    if parts is None:
        raise HeadError(
            f"The end of the encoder of the family {family.name!r} is not described, so that nothing can be followed into "
            f"it. Described are those of {listing(ENCODER_ENDS)}."
        )
    return parts


# ---- weights that a checkpoint lacks ---------------------------------------------------------------------------------


_BASE = "base_model"
_POOLER = "pooler"
"""What bare models call the part of a head that they hold themselves."""

_noted: WeakKeyDictionary[object, frozenset[str]] = WeakKeyDictionary()


def note_lacking(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Remember the weights of a model that are not those of its checkpoint."""
    _noted[model] = frozenset(names)


def made_up(model: PreTrainedModel) -> frozenset[str]:
    """The weights of a model that are not those of its checkpoint, but drawn at random when it was loaded."""
    return _noted.get(model, frozenset())


def is_of_head(model: PreTrainedModel, head: Head | None, name: str) -> bool:
    """Whether a weight belongs to the task head, and to nothing that states or maps are made of."""
    base = _path_of_base(model)
    if base and not _lies_in(name, base):
        return True
    described = [] if head is None else [path for path in _paths(head.parts) if not _lies_in(path, _BASE)]
    return _POOLER in name.split(".") or any(_lies_in(name, path) for path in described)


def refuse_lacking(model: PreTrainedModel, head: Head | None) -> None:
    """Refuse a head that has weights which were made up; without a description, any that were."""
    lacking = sorted(made_up(model))
    if head is not None:
        base = _path_of_base(model)
        paths = [
            path.replace(_BASE, base, 1).lstrip(".") if _lies_in(path, _BASE) else path for path in _paths(head.parts)
        ]
        lacking = [name for name in lacking if any(_lies_in(name, path) for path in paths)]
    if lacking:
        raise HeadError(
            f"The checkpoint of this {type(model).__name__} lacks weights of its task head: {few(lacking)}. They were made "
            f"up at random, so that no prediction of it means anything. Load a checkpoint that was trained for its task; "
            f"maps, and explanations along a direction, need no head."
        )


def _path_of_base(model: PreTrainedModel) -> str:
    """Where the bare model lies in a model; nowhere if that is the model itself."""
    return next((name for name, module in model.named_modules() if module is model.base_model), "")


def _lies_in(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def _paths(described: object) -> Iterator[str]:
    """Every name in the description of some parts, also in that of their branches."""
    if isinstance(described, str):
        yield described
    elif isinstance(described, tuple):
        for item in cast("tuple[object, ...]", described):
            yield from _paths(item)
    elif is_dataclass(described):
        for item in fields(described):
            yield from _paths(getattr(described, item.name))


_TASKS_OF_STATES = (
    *("ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForTokenClassification", "ForQuestionAnswering"),
    "ForImageClassification",
)
"""Heads that read states as they are, whose first parts are therefore the end of the bare model below them."""

_STATES = ("last_hidden_state",)

_TOWER_ENDS: dict[str, tuple[HeadPart, ...]] = {
    "clip-text": (LayerNormPart("base_model.final_layer_norm"),),
    "siglip-text": (LayerNormPart("base_model.final_layer_norm"),),
    **{
        name: (RmsNormPart("base_model.norm"),)
        for name in ("llama", "llama4", "qwen3_moe", "glm4", "glm4_moe", "gemma4")
    },
    **{name: (UnitRmsNormPart("base_model.norm"),) for name in ("qwen3_5_text", "qwen3_5_moe_text")},
}
"""What acts after the last block of towers whose classes have no described head inside, by the names of their families."""


_CLASS_ENDS: dict[str, tuple[HeadPart, ...]] = {
    "SiglipVisionModel": (LayerNormPart("base_model.post_layernorm"),),
    **{name: (RmsNormPart("base_model.language_model.norm"),) for name in ("Gemma4Model", "Gemma4UnifiedModel")},
}
"""The same of classes whose family has others that end otherwise."""


def states_head(bare: PreTrainedModel, family: Family) -> Head:
    """What a bare model does between its last block and the states that it outputs, as a head: its last norm, mostly.

    It is what the described heads of the same model begin with inside of it; nothing where none is described.
    """
    name = type(bare).__name__
    if name in _CLASS_ENDS:
        return Head("states", _CLASS_ENDS[name], _STATES)
    if family.name in ENCODER_ENDS and family.encoder is None:  # the encoder of an encoder-decoder, alone
        return Head("states", ENCODER_ENDS[family.name], _STATES)
    for task in _TASKS_OF_STATES:
        described = _BY_CLASS.get(name.removesuffix("Model") + task)
        if described is not None:
            head = described if isinstance(described, Head) else described(bare.config)
            inside = takewhile(_is_inside, head.parts)
            return Head("states", tuple(inside), _STATES)
    return Head("states", _TOWER_ENDS.get(family.name, ()), _STATES)


def _is_inside(part: HeadPart) -> bool:
    """Whether a part belongs to the bare model."""
    return isinstance(part, LinearPart | NormPart) and part.module.startswith("base_model.")


for _table in (
    *(
        decoders.DECODERS,
        encoders.ENCODERS,
        encoders.IMAGES,
        sounds.SOUNDS,
        encoder_decoders.ENCODER_DECODERS,
        multimodal.MULTIMODAL,
    ),
):
    for _name, _head in _table.items():
        register_head(_head, _name)
