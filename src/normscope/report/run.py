"""A finished run in its folder: manifest, tables and figures, of this version and of older ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from normscope.errors import FileError
from normscope.experiments.tables import Table
from normscope.models.source import short_name
from normscope.paths import MANIFEST, difference, refuse_unfinished

_PARTS = ("model", "experiments", "settings", "versions", "finished")
"""What the manifests of all versions have."""


@dataclass(frozen=True)
class Run:
    """A run's folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        path = Path(folder)
        manifest = path / MANIFEST
        refuse_unfinished(path)
        try:
            content = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(f"{str(manifest)!r} cannot be read: {error}.") from error
        missing = [name for name in _PARTS if not isinstance(content, dict) or name not in content]
        if missing:
            raise FileError(_refusal(manifest, f"it has no {', '.join(missing)}"))
        run = cls(path, content)
        try:
            run.facts()
            _ = [(list(facts["tables"]), list(facts["figures"])) for facts in run.experiments.values()]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(_refusal(manifest, f"its contents are not those of one ({error})")) from error
        return run

    @property
    def title(self) -> str:
        return str(self.manifest["model"]["model"])

    @property
    def experiments(self) -> dict[str, Any]:
        return self.manifest["experiments"]

    def table(self, name: str) -> Table:
        try:
            return pq.read_table(self._checked(f"tables/{name}.parquet"))
        except (OSError, pa.ArrowException) as error:
            raise FileError(f"The table {name!r} of {str(self.folder)!r} cannot be read: {error}.") from error

    def figure(self, name: str) -> bytes:
        try:
            return self._checked(f"figures/{name}.svg").read_bytes()
        except OSError as error:
            raise FileError(f"The figure {name!r} of {str(self.folder)!r} cannot be read: {error}.") from error

    def _checked(self, name: str) -> Path:
        """A file of the run; raises if it is not as the run wrote it. Older manifests have no checksums."""
        path = self.folder / name
        files = self.manifest.get("files")
        how = None if not isinstance(files, dict) else difference(path, files.get(name))
        if how is not None:
            raise FileError(f"{str(path)!r} {how}. Run the same command again: it writes all tables and figures anew.")
        return path

    def facts(self) -> dict[str, str]:
        """The facts at the top of a report."""
        manifest, settings = self.manifest, self.manifest["settings"]
        corpus = settings.get("corpus") or {}
        changes = ", ".join(f"{kind}: {count}" for kind, count in manifest["rows_left_out_or_changed"].items())
        return {
            "model": self.title,
            "weights": f"{manifest['model']['fingerprint']} ({manifest['model']['dtype']})",
            "corpus": f"{short_name(str(corpus.get('path', 'none')))} ({settings.get('corpus_fingerprint') or '-'})",
            "sequences": f"{manifest['sequences']} ({manifest['tokens']} tokens)",
            "left out or cut": changes or "none",
            "masking": self._masking(),
            "seed": str(settings["seed"]),
            "worst completeness error": _rounded(manifest["worst_completeness_error"]),
            **self._approximate(),
            "normscope": manifest["versions"]["normscope"],
            "finished": manifest["finished"],
        }

    def _approximate(self) -> dict[str, str]:
        """How maps were approximated, where they were."""
        known = self.manifest.get("approximate")
        if not known:
            return {}
        reached = f"rank correlation at least {known['spearman']:.4f}, error at most {100 * known['error']:.1f} %"
        return {"approximate maps": f"{known['name']} ({reached}, on sampled queries)"}

    def _masking(self) -> str:
        """The requested masking, and the experiments that saw masked tokens (older manifests do not record it)."""
        masked = [name for name, facts in self.experiments.items() if facts.get("masked")]
        known = any("masked" in facts for facts in self.experiments.values())
        requested = str(self.manifest["settings"]["masking"])
        cannot = [name for name, facts in self.experiments.items() if "no mask token" in str(facts.get("masking", ""))]
        impossible = f"; nothing can be masked for {', '.join(cannot)}: the model has no mask token" if cannot else ""
        return f"{requested} (masked: {', '.join(masked) or 'none'}{impossible})" if known else requested


def _refusal(manifest: Path, why: str) -> str:
    return f"{str(manifest)!r} is not the manifest of a finished run: {why}. Remove it and run the same command again."


def _rounded(error: object) -> str:
    """A small number in a few digits; any other value as it is. Some experiments measure no such error."""
    return "not measured" if error is None else f"{error:.1e}" if isinstance(error, float) else str(error)
