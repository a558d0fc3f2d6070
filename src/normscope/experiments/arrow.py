"""Names for pyarrow's types, which it does not declare itself."""

from __future__ import annotations

from typing import Any

Table = Any
"""A `pyarrow.Table`."""

Column = Any
"""A `pyarrow.Array`."""

Schema = Any
"""A `pyarrow.Schema`."""
