"""Write `normscope/families/default_blocks.json`: the blocks of architectures whose blocks depend on the configuration, as
transformers' default configuration has them. `normscope models` shows them without importing transformers.

Run it when a family or the pinned version of transformers changes; a test compares the file with what this would write.
"""

from __future__ import annotations

import json
from pathlib import Path

import normscope
from normscope.cli.models import default_block
from normscope.families.spec import Topology

FILE = Path(normscope.__file__).parent / "families" / "default_blocks.json"


def default_blocks() -> str:
    """The text of the file."""
    blocks = {
        model_type: {"family": family.name, "block": default_block(model_type, family)}
        for model_type, family in normscope.supported_models().items()
        if not isinstance(family.stack.topology, Topology)
    }
    lines = [f"  {json.dumps(model_type)}: {json.dumps(block)}" for model_type, block in blocks.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(default_blocks(), encoding="utf-8")
    print(f"Wrote {FILE}.")
