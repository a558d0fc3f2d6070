"""Finds the stacks that a family describes in a model: their blocks, and modules between blocks. Only inspects modules;
nothing runs here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature

from torch import nn
from transformers import PreTrainedModel

from normscope.capture.blocks import watched_modules
from normscope.capture.loose import HalfBlock, LooseBlock
from normscope.capture.values import watched_below
from normscope.errors import ModelError, UnsupportedArchitectureError
from normscope.families.refused import check_class
from normscope.families.spec import Family, Part, Seams, SequenceFirst, Stack, attentions_in


def bare_model(model: PreTrainedModel) -> nn.Module:
    """The model without its task head, which is not needed.

    Where what transformers calls so is the encoder, which reads states and no inputs (DINOv3), it is the model itself.
    """
    base = model.base_model
    return model if "hidden_states" in signature(base.forward).parameters else base


def family_in(model: PreTrainedModel, family: Family) -> Family:
    """The family, restricted to the stacks that the model has: some encoder-decoder classes have only one of the two.

    A decoder alone has no encoder to attend to, so its chain has no cross-attention. For a pyramid, it is the last stage,
    unless another one was chosen.
    """
    check_class(type(model).__name__)
    if family.pyramid is not None and family.stage is None:
        return family.at_stage(model.config)
    if family.encoder is None:
        return family
    match bool(_blocks(model, family.encoder)), bool(_blocks(model, family.stack)):
        case True, False:
            return replace(family, stack=family.encoder, encoder=None)
        case False, True:
            return replace(family, stack=family.stack.without_cross(), encoder=None, reads="text")
        case _:
            return family


def blocks_of(model: PreTrainedModel, stack: Stack) -> list[nn.Module]:
    """The block modules of a stack, each once; raises when the family's description does not fit."""
    blocks = _blocks(model, stack)
    compiled = None if blocks else _compiled(model)
    if compiled is not None:
        raise ModelError(
            f"The blocks of {type(model).__name__} are inside {compiled!r}, which was compiled. Compile the model as a "
            f"whole (torch.compile(model)), or put the original back (its _orig_mod)."
        )
    if not blocks:
        raise UnsupportedArchitectureError(
            f"{type(model).__name__} says it is a {model.config.model_type}, "
            f"but has no blocks at {stack.blocks!r} below {type(bare_model(model)).__name__}."
        )
    topologies = stack.topologies(model.config)
    if len(blocks) > len(topologies):
        raise UnsupportedArchitectureError(
            f"{type(model).__name__} has {len(blocks)} blocks at {stack.blocks!r}, but its configuration says that it has "
            f"{len(topologies)}. Remove the blocks that it should not have, or restore the configuration."
        )
    for index, block in enumerate(blocks):
        chain = topologies[index % len(topologies)].chain()
        for path in watched_paths(chain, below_attention=True):
            if not _holds(block, path):
                raise UnsupportedArchitectureError(
                    f"The blocks of {type(model).__name__} have no {path!r}, where its family expects it."
                )
    return blocks


def module_between(model: PreTrainedModel, stack: Stack) -> str | None:
    """The module that changes states between two blocks of a stack, by its path below the bare model.

    `None` if the input of every block is the output of the block before it.
    """
    return stack.between if stack.between is not None and _holds(bare_model(model), stack.between) else None


def watched_paths(chain: Sequence[Part], *, below_attention: bool) -> list[str]:
    """The submodules of a block whose inputs and outputs its trace needs."""
    paths = [path for part in chain for path in watched_modules(part)]
    if below_attention:
        paths += [path for part in attentions_in(chain) for path in watched_below(part)]
    return list(dict.fromkeys(paths))


def sequence_first(chain: Sequence[Part]) -> frozenset[str]:
    """The submodules that have the tokens before the batch."""
    values = [part.value for part in attentions_in(chain)]
    return frozenset(value.module for value in values if isinstance(value, SequenceFirst))


def _compiled(model: PreTrainedModel) -> str | None:
    """The path of a compiled module within the model, if there is one."""
    return next((name for name, module in model.named_modules() if hasattr(module, "_orig_mod")), None)


def _blocks(model: PreTrainedModel, stack: Stack) -> list[nn.Module]:
    """The modules at the stack's path (or at one of several), step by step: a model has many more modules than blocks."""
    bare = bare_model(model)
    if stack.seams is not None:
        return _loose(bare, stack.blocks, stack.seams)
    blocks = [block for path in stack.blocks.split("|") for block in _at_path(bare, path)]
    if stack.cut is not None:
        return [HalfBlock(block, stack.cut, first=first) for block in blocks for first in (True, False)]
    return list(dict.fromkeys(blocks))


def _loose(bare: nn.Module, blocks: str, seams: Seams) -> list[nn.Module]:
    """Blocks that represent their parts, which are in several lists or in a module that is not called."""
    lists = {path.removesuffix(".*"): _at_path(bare, path) for path in blocks.split("&")}
    if len(lists) == 1:
        return [LooseBlock(dict(block.named_children()), seams) for block in next(iter(lists.values()))]
    return [LooseBlock(dict(zip(lists, parts, strict=True)), seams) for parts in zip(*lists.values(), strict=True)]


def _at_path(module: nn.Module, path: str) -> list[nn.Module]:
    found = [module]
    for part in path.split("."):
        numbered = part == "*"
        children = [(name, child) for parent in found for name, child in parent.named_children()]
        found = [child for name, child in children if (name.isdecimal() if numbered else name == part)]
    return found


def block_pattern(stack: Stack) -> str:
    """A regular expression for the paths of the blocks of a stack, below the bare model."""
    return "|".join(re.escape(path).replace(r"\*", r"\d+") for path in re.split(r"[|&]", stack.blocks))


def _holds(module: nn.Module, path: str) -> bool:
    try:
        module.get_submodule(path)
    except AttributeError:
        return False
    return True
