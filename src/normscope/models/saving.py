"""Writes a loaded model as a folder of safetensors, configuration and tokenizer, which loads safely and fast."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from normscope.errors import FileError
from normscope.models.model import Model
from normscope.paths import file_to_write, kind, reason, refusing, temporary_affixes, umask


def check_model_folder(folder: str | Path) -> Path:
    """The folder to write a model to. Raises if there is something already, or if it cannot be made."""
    if kind(folder) is not None:
        raise FileError(f"{str(folder)!r} is there already. Remove it, or give another name.")
    return file_to_write(folder)  # or folder: what it needs is the same


def save_model(model: Model, folder: str | Path) -> Path:
    """Write a model and its tokenizer to a new folder. It appears under its name only when it is complete."""
    target = check_model_folder(folder)
    prefix, suffix = temporary_affixes(target)
    with refusing(folder):
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix, suffix=suffix))
    try:
        model.module.save_pretrained(temporary)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(temporary)
        _share(temporary)
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"{str(folder)!r} cannot be written: {reason(error)}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _share(folder: Path) -> None:
    """Permissions as new files have them: temporary folders, and files of safetensors, are for their owner alone."""
    folder.chmod(0o777 & ~umask())
    for path in folder.iterdir():
        path.chmod(0o666 & ~umask())
