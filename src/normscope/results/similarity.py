"""The result of a similarity: how much every pair of tokens of two texts contributes, and the proof.

A thin, read-only view on a dataset with a written schema, like `Analysis` and `Explanation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from normscope.errors import InputError, SelectionError, listing
from normscope.options import whole_number
from normscope.results import schema
from normscope.results import similarity_schema as names
from normscope.results.base import Result
from normscope.results.tokens import readable
from normscope.results.views import view
from normscope.results.words import summed_by_word

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Cell(NamedTuple):
    """One cell of the table: a token of each text, their positions, and their contribution to the similarity."""

    first: str
    second: str
    value: float
    first_position: int
    second_position: int


class Similarity(Result):
    """Why two texts are similar: signed cells, one for each pair of tokens, which with margins and constant add up to the
    model's own similarity.

    Made by `Analyzer.similarity`, or read from a file by `normscope.open`.

    Examples:
        >>> import normscope as ns
        >>> similarity = ns.load().similarity("A man plays a guitar.", "Someone makes music with a guitar.")
        >>> similarity.table.dims, similarity.top(1)[0].first, similarity.top(1)[0].second
        (('first', 'second'), 'guitar', 'guitar')
        >>> total = similarity.table.sum() + similarity.first_margin.sum() + similarity.second_margin.sum()
        >>> abs(float(total) + similarity.constant - similarity.value) < 1e-5
        True
        >>> abs(float(similarity.first.sum()) + similarity.first_bias - similarity.value) < 1e-5
        True
    """

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def value(self) -> float:
        """The similarity that the model gives: the cosine (or dot product) of its embeddings, of a plain forward pass."""
        return float(self._dataset[names.VALUE])

    @property
    def measure(self) -> str:
        """What the value is: `cosine`, `dot` or `late-interaction`."""
        return str(self._dataset.attrs["measure"])

    @property
    def completeness(self) -> float:
        """How far everything together is from the value, relative to the size of all that is added up."""
        return float(self._dataset[names.ERROR])

    @property
    def texts(self) -> tuple[str, str]:
        """Both texts, without the instructions before them."""
        return str(self.attrs["first_text"]), str(self.attrs["second_text"])

    @property
    def logit(self) -> float | None:
        """The model's own logit of an image and a text: the cosine times its scale, plus its bias. Else `None`."""
        if "logit_scale" not in self.attrs:
            return None
        return self.value * float(self.attrs["logit_scale"]) + float(self.attrs["logit_bias"])

    def image(self, side: str) -> np.ndarray | None:
        """`[y, x, channel]`: the image on a side, `"first"` or `"second"`, as large as the model reads it; else `None`.

        Examples:
            >>> similarity.image("first") is None  # both sides are texts
            True
        """
        name = f"{self._side(side)}_{schema.IMAGE}"
        return self._dataset[name].values if name in self._dataset else None

    def patches(self, side: str) -> np.ndarray | None:
        """`[token, 2]`: the row and column of every patch on a side, -1 for special tokens; `None` if it is a text.

        Examples:
            >>> similarity.patches("second") is None
            True
        """
        side = self._side(side)
        if f"{side}_row" not in self._dataset.coords:
            return None
        return np.stack([self._dataset[f"{side}_{name}"].values for name in ("row", "column")], -1)

    @property
    def prompts(self) -> tuple[str, str]:
        """The instructions before both texts; empty where there are none."""
        return str(self.attrs["first_prompt"]), str(self.attrs["second_prompt"])

    @property
    def first_tokens(self) -> list[str]:
        """The tokens (or words) of the first text."""
        return self._tokens("first")

    @property
    def second_tokens(self) -> list[str]:
        """The tokens (or words) of the second text."""
        return self._tokens("second")

    # ---- the account ---------------------------------------------------------------------------------------------------

    @property
    def has_table(self) -> bool:
        """Whether there is a table; otherwise only the shares of single tokens are known (`table=False`)."""
        return names.TABLE in self._dataset

    @property
    def table(self) -> xr.DataArray:
        """`[first, second]`, signed: the contribution of every pair of tokens to the similarity."""
        return self._of_table(names.TABLE)

    @property
    def first_margin(self) -> xr.DataArray:
        """`[first]`: the product of every token of the first text with the bias of the second text's embedding."""
        return self._of_table("first_margin")

    @property
    def second_margin(self) -> xr.DataArray:
        """`[second]`: the product of every token of the second text with the bias of the first text's embedding."""
        return self._of_table("second_margin")

    @property
    def constant(self) -> float:
        """The product of the biases of both embeddings, which belongs to no token."""
        return float(self._of_table(names.CONSTANT))

    @property
    def first(self) -> xr.DataArray:
        """`[first]`: the share of each token of the first text: its row of the table plus its margin."""
        return self._share("first", "second")

    @property
    def second(self) -> xr.DataArray:
        """`[second]`: the share of each token of the second text: its column of the table plus its margin."""
        return self._share("second", "first")

    @property
    def first_bias(self) -> float:
        """What no token of the first text did: with `first` it adds up to the value."""
        return self._bias("first", "second")

    @property
    def second_bias(self) -> float:
        """What no token of the second text did: with `second` it adds up to the value."""
        return self._bias("second", "first")

    @property
    def matches(self) -> xr.DataArray | None:
        """`[first]`: for late interaction, how similar the vector of every token is to its best match in the second text.

        The coordinate `match` is the position of that token there, -1 for tokens without a match. `None` elsewhere.
        """
        if names.MATCH not in self._dataset:
            return None
        return self._dataset[names.MATCH_VALUE].assign_coords(match=self._dataset[names.MATCH])

    def top(self, k: int = 5) -> list[Cell]:
        """The `k` cells of largest size, strongest first.

        Examples:
            >>> [(cell.first, cell.second) for cell in similarity.top(2)]
            [('guitar', 'guitar'), ('guitar', 'music')]
        """
        count = whole_number(k, "The number of cells (k)")
        if count < 1:
            raise SelectionError(f"At least one cell is shown, not {count}.")
        cells = self.table.values
        order = np.argsort(-np.abs(cells), axis=None, kind="stable")[:count]
        rows, columns = (axis.tolist() for axis in np.unravel_index(order, cells.shape))
        first, second = readable(self.first_tokens), readable(self.second_tokens)
        return [
            Cell(first[row].strip(), second[column].strip(), float(cells[row, column]), row, column)
            for row, column in zip(rows, columns, strict=True)
        ]

    # ---- other units ---------------------------------------------------------------------------------------------------

    def words(self) -> Similarity:
        """The same with words for tokens. Everything is summed, so that all sums stay what they are.

        Examples:
            >>> words = similarity.words()
            >>> abs(float(words.table.sum()) - float(similarity.table.sum())) < 1e-5
            True
        """
        dataset = self._dataset.drop_vars([names.MATCH, names.MATCH_VALUE], errors="ignore")
        return Similarity(summed_by_word(dataset, names.SIDES))

    # ---- out of here ---------------------------------------------------------------------------------------------------

    def to_pandas(self) -> pd.DataFrame:
        """The table as a data frame with the tokens as labels; the last row and column are margins and constant.

        Examples:
            >>> frame = similarity.to_pandas()
            >>> bool(abs(frame.to_numpy().sum() - similarity.value) < 1e-5)
            True
        """
        import pandas as pd  # noqa: PLC0415  (slow to import)

        cells = np.block(
            [
                [self.table.values, self.first_margin.values[:, None]],
                [self.second_margin.values[None], np.array([[self.constant]])],
            ]
        )
        return pd.DataFrame(cells, [*self.first_tokens, "(bias)"], [*self.second_tokens, "(bias)"])

    def plot(self, **options: object) -> Figure:
        """The table with its margins as a picture; options are those of `plots.plot_similarity`.

        Examples:
            >>> similarity.plot().savefig("similarity.svg")
        """
        return view("plots:plot_similarity")(self, **options)

    def explore(self, *others: Result) -> Any:
        """The explorer as a notebook widget, alone or with other similarities of the same model (needs `notebook`).

        Examples:
            >>> widget = similarity.explore()  # at the end of a cell, it shows itself
        """
        check_one_model([self, *(other for other in others if isinstance(other, Similarity))])
        return super().explore(*others)

    def save(self, path: str | Path, **options: object) -> Path:
        """Write to a file in the format that its ending names: nc, html, csv, parquet, json, svg, png or pdf.

        A netCDF file (nc, or no ending) holds everything. `normscope.open` reads it back, and it opens without normscope.
        Options are those of a picture, as in `plot`.

        Examples:
            >>> path = similarity.save("similarity.nc")
            >>> ns.open(path).value == similarity.value
            True
        """
        return view("output.similarity_export:export_similarities")([self], path, **options)

    def __repr__(self) -> str:
        first, second = (_short(text) for text in self.texts)
        size = f"{len(self.first_tokens)} x {len(self.second_tokens)} {self.attrs['unit']}s"
        made = f"{self.measure} {self.value:.4f}, {size}, model={self.attrs['model']!r}"
        return f"Similarity({first!r}, {second!r}: {made}, completeness error {self.completeness:.1e})"

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _side(self, side: str) -> str:
        if side not in names.SIDES:
            raise SelectionError(f"A similarity has the sides {listing(map(repr, names.SIDES))}, not {side!r:.60}.")
        return side

    def _tokens(self, side: str) -> list[str]:
        return [str(token) for token in self._dataset[f"{side}_token"].values]

    def _of_table(self, name: str) -> xr.DataArray:
        if name not in self._dataset:
            raise SelectionError(
                f"The {name.replace('_', ' ')} was not computed, only what each token does (first, second): ask for "
                f"similarity(..., table=True)."
            )
        return self._dataset[name]

    def _share(self, side: str, other: str) -> xr.DataArray:
        if not self.has_table:
            return self._dataset[f"{side}_{names.SHARE}"]
        share = self._dataset[names.TABLE].sum(other) + self._dataset[f"{side}_{names.MARGIN}"]
        return share.rename(side)

    def _bias(self, side: str, other: str) -> float:
        if not self.has_table:
            return float(self._dataset[f"{side}_{names.BIAS}"])
        return float(self._dataset[f"{other}_{names.MARGIN}"].sum()) + self.constant


def check_one_model(similarities: Sequence[Similarity]) -> None:
    """Raise if similarities that are to be shown together are of different models, which cannot be compared."""
    models = {str(each.attrs["fingerprint"]): str(each.attrs["model"]) for each in similarities}
    if len(models) > 1:
        raise InputError(
            f"These similarities are of different models ({', '.join(models.values())}), whose values cannot be compared: "
            f"show those of one model."
        )


def _short(text: str, longest: int = 40) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"
