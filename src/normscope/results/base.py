"""What every result has in common: datasets in a written schema, facts about where they came from, and ways to see them.

A result is a thin, read-only view on its dataset. `Answer` and `Similarity` have one; `Analysis` and `Explanation` have one
for each stack of the model (`StackResult`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import xarray as xr

from normscope.deprecated import warn_renamed
from normscope.errors import FileError, SelectionError
from normscope.results import schema
from normscope.results.tokens import running_text
from normscope.results.views import view, widget

if TYPE_CHECKING:
    import pandas as pd

_Own = TypeVar("_Own", bound="Result")
_OwnStack = TypeVar("_OwnStack", bound="StackResult")
"""The class of a result itself: the encoder of an analysis is an analysis."""


class Result(ABC):
    """A result: its dataset, how well it adds up, its strongest numbers, and the ways to show and save it."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @classmethod
    def from_tree(cls: type[_Own], tree: xr.DataTree) -> _Own:
        """Create a result from a tree of datasets, the inverse of `tree`.

        Examples:
            >>> ns.Analysis.from_tree(analysis.tree).scopes == analysis.scopes
            True
        """
        return cls(tree.to_dataset())

    @classmethod
    def open(cls: type[_Own], path: str | Path) -> _Own:
        """Read what `save` wrote to a netCDF file. `normscope.open` opens a result of any kind.

        Examples:
            >>> ns.Analysis.open(analysis.save("bubble.nc")).tokens == analysis.tokens
            True
        """
        result = view("results.opening:open")(path)
        if not isinstance(result, cls):
            kind, requested = (
                f"{'an' if name[0] in 'AE' else 'a'} {name}" for name in (type(result).__name__, cls.__name__)
            )
            raise FileError(f"{str(path)!r} holds {kind}, but {requested} was requested: use normscope.open.")
        return result

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> xr.Dataset:
        """All numbers and labels, in the documented schema."""
        return self._dataset

    @property
    def tree(self) -> xr.DataTree:
        """The dataset as the root of a tree."""
        return xr.DataTree(self._dataset)

    @property
    def attrs(self) -> dict[str, Any]:
        """Where the result came from: model, fingerprint, settings, dtype, versions."""
        return dict(self._dataset.attrs)

    @property
    @abstractmethod
    def completeness(self) -> float | xr.DataArray:
        """The relative error of the sum of all numbers against the model's own value or state."""

    # ---- ways to see it ------------------------------------------------------------------------------------------------

    @abstractmethod
    def top(self, k: int = 10) -> pd.DataFrame | Sequence[object]:
        """The `k` strongest numbers, strongest first."""

    @abstractmethod
    def to_pandas(self) -> pd.DataFrame:
        """All numbers as a table."""

    def show(self, **options: Any) -> None:
        """Show the result: in a notebook as the explorer, elsewhere as coloured text on the terminal.

        With options it is text in a notebook, too. For an analysis they choose a map: `scope`, `layer`, `head` and
        `normalise`, as in `plot`; by default it is that of the whole last layer.

        Examples:
            >>> analysis.without_special_tokens().show(scope="AttnW", layer=1)  # doctest: +ELLIPSIS
            AttnW, layer 1: attention weight, queries by keys...
        """
        view("output.show:show")(self, **options)

    def explore(self, *others: Result) -> Any:
        """The explorer as a notebook widget, alone or together with other results (needs the extra `notebook`).

        Examples:
            >>> widget = analysis.explore()  # at the end of a cell, it shows itself
        """
        return widget(self, *others)

    def _repr_html_(self) -> str | None:
        """The explorer inside a notebook's cell, without any extra; the plain text of large results."""
        return view("explorer.page:frame")(self)

    @abstractmethod
    def save(self, path: str | Path, **options: Any) -> Path:
        """Write to a file in the format that its ending names."""


class StackResult(Result):
    """A result with a dataset for each stack: for an encoder-decoder model, `encoder` is the result of the encoder."""

    def __init__(self, dataset: xr.Dataset, encoder: StackResult | None = None) -> None:
        super().__init__(dataset)
        self._encoder = encoder

    @classmethod
    def from_tree(cls: type[_OwnStack], tree: xr.DataTree) -> _OwnStack:
        """Create a result from a tree of datasets, the inverse of `tree`.

        Examples:
            >>> ns.Analysis.from_tree(analysis.tree).scopes == analysis.scopes
            True
        """
        if schema.DECODER not in tree.children:
            return cls(tree.to_dataset())
        main, encoder = (tree[name].to_dataset() for name in (schema.DECODER, schema.ENCODER))
        return cls(main, cls(encoder))

    @property
    def tree(self) -> xr.DataTree:
        """The same as a tree: one dataset at its root, or those of `decoder` and `encoder` next to each other below it."""
        return schema.tree(self._dataset, None if self._encoder is None else self._encoder.dataset)

    @property
    def encoder(self: _OwnStack) -> _OwnStack:
        """The encoder's own result, for an encoder-decoder model; this one is then the decoder's."""
        if self._encoder is None:
            raise SelectionError("There is no encoder here: the model has none, or no scope of it was requested.")
        return cast(_OwnStack, self._encoder)

    @property
    def has_encoder(self) -> bool:
        """Whether this is the result of a decoder, with that of its encoder as `encoder`."""
        return self._encoder is not None

    @property
    def text(self) -> str:
        """The input text; for a decoder, the text that it reads. Joined from the tokens where ids were given."""
        given = str(self._dataset.attrs.get("text", ""))
        return given or running_text(self._own_tokens())

    def _own_tokens(self) -> list[str]:
        return [str(token) for token in self._dataset["query_token"].values]

    @property
    @abstractmethod
    def method(self) -> str:
        """The method that computed the numbers."""

    @property
    @abstractmethod
    def tokens(self) -> list[str]:
        """The tokens that the numbers belong to."""

    @abstractmethod
    def top(self, k: int = 10) -> pd.DataFrame:
        """The `k` strongest numbers, strongest first."""

    def explore(self, *others: Result, compare: Result | None = None) -> Any:
        """The explorer as a notebook widget, alone or together with other results (needs the extra `notebook`).

        Another analysis is shown next to this one; explanations are offered as predictions to follow. The keyword
        `compare` is deprecated.

        Examples:
            >>> widget = analysis.explore()  # at the end of a cell, it shows itself
        """
        if compare is not None:
            warn_renamed("The keyword 'compare' of explore", "explore(other)")
            others = (*others, compare)
        return super().explore(*others)
