"""What axe finds wrong with a page for those who see, hear or move otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

AXE = Path(__file__).parents[2] / "front-end" / "node_modules" / "axe-core" / "axe.min.js"


def faults(page: Any) -> list[str]:
    """The serious ones: what is wrong, and where."""
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {node['target']}" for one in serious for node in one["nodes"]]
