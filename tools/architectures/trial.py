"""The battery on tiny random models of one type: its bare model, and its class for each task.

What is analysed has to pass the whole battery (`normscope.testing`) and an analysis and an explanation as a user asks for
them; what is refused has to be refused by an error that says why. Anything else is wrong, or a crash.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import transformers
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

import normscope as ns
from normscope.capture import bare_model, family_in
from normscope.errors import NormscopeError
from normscope.families import family_of, supported_models
from normscope.families.heads import head_of
from normscope.families.refused import check_whole
from normscope.testing import assert_explained, assert_family, assert_head
from normscope.testing.inputs import random_inputs
from normscope.testing.tiny import model_of, shrunk

Outcome = Literal["analysed", "refused", "wrong", "crashed", "not built"]

TASKS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "encoder-decoder": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
}
"""The tasks that are counted, and where transformers lists their classes."""

BARE = "MODEL_MAPPING_NAMES"


@dataclass(frozen=True)
class Trial:
    """What became of one class of a type: `error` is the worst of its relative errors, `reason` why there is none."""

    class_name: str
    task: str
    outcome: Outcome
    error: float | None = None
    reason: str = ""


def model_types() -> list[str]:
    """Every type that has a bare model or a class of a task that is counted."""
    return sorted(set().union(*(getattr(modeling_auto, name) for name in (BARE, *TASKS.values()))))


def classes_of(model_type: str) -> dict[str, str]:
    """The class of each task of a type; `"bare"` is the model without a head."""
    found: dict[str, str] = {}
    for task, mapping in {"bare": BARE, **TASKS}.items():
        listed = getattr(modeling_auto, mapping).get(model_type)
        if listed is not None:
            found[task] = listed if isinstance(listed, str) else listed[0]
    return found


def try_type(model_type: str) -> list[Trial]:
    """The battery on every class of a type."""
    return [_try_class(model_type, task, name) for task, name in classes_of(model_type).items()]


def _try_class(model_type: str, task: str, class_name: str) -> Trial:
    try:
        model = built(model_type, class_name)
        if model_type in supported_models():
            _run(model)
        elif task in ("causal", "masked"):
            _run_with_ids(model)
    except NormscopeError as error:
        return Trial(class_name, task, "refused", reason=str(error))
    except Exception as error:  # whatever a configuration that was guessed may throw
        return Trial(class_name, task, "not built", reason=_first_line(error))
    try:
        return Trial(class_name, task, "analysed", error=_proved(model))
    except NormscopeError as error:
        return Trial(class_name, task, "refused", reason=str(error))
    except AssertionError as error:
        return Trial(class_name, task, "wrong", reason=str(error))
    except Exception as error:
        return Trial(class_name, task, "crashed", reason=f"{_first_line(error)} ({_where(error)})")


def built(model_type: str, class_name: str) -> PreTrainedModel:
    """A tiny model of a class. The text classes of a multimodal type take the configuration of its text tower."""
    config = shrunk(model_type)
    wanted = getattr(transformers, class_name).config_class
    if wanted is not None and not isinstance(config, wanted) and wanted is type(config.get_text_config()):
        config = config.get_text_config()
    return model_of(class_name, config)


def _run(model: PreTrainedModel) -> None:
    """A plain pass: a configuration that was guessed may be one with which the model itself cannot run."""
    check_whole(type(model).__name__)
    family = family_in(model, family_of(model.config.model_type))
    with torch.no_grad():
        bare_model(model)(**random_inputs(family, model))


def _run_with_ids(model: PreTrainedModel) -> None:
    """The same of a type that no family describes: it has to run with nothing but a text."""
    with torch.no_grad():
        model(input_ids=torch.arange(3, 12)[None])


def _proved(model: PreTrainedModel) -> float:
    """The worst error of the states and, where the model has a head, of a logit; raises where anything is off."""
    analyzer = ns.load(model)  # refuses what is not described
    family = analyzer.family
    assert_family(family, model)
    inputs = {name: tensor[:1] for name, tensor in random_inputs(family, model).items() if "mask" not in name}
    decoded = inputs.pop("decoder_input_ids", None)
    target = None if analyzer.family.encoder is None else {"input_ids": decoded}
    analysis = analyzer.analyze(inputs, decoder_text=target)
    assert isinstance(analysis, ns.Analysis)
    worst = float(analysis.dataset["component_error"].max())
    if bare_model(model) is model:
        return worst
    head_of(model)
    assert_head(model, family=family)
    return max(worst, assert_explained(model).completeness)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().split(chr(10))[0][:160]}"


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
