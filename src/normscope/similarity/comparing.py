"""From two texts to the dataset of their similarity: what is requested, resolved, computed, checked, and described."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from normscope.errors import CompletenessError, InputError, listing
from normscope.models.model import Model
from normscope.options import LATE_INTERACTION, Measure
from normscope.results.similarity_schema import Account, Matches, Text, similarity_dataset
from normscope.similarity.account import Decomposed, Interaction, Table, shares_of, table
from normscope.similarity.encoders import Encoders
from normscope.similarity.plain import Rows
from normscope.similarity.recording import RecordedText, record
from normscope.similarity.spec import EmbeddingSpec
from normscope.similarity.texts import TextInput

Tell = Callable[[int, int], None]
"""A callback that receives the number of texts that are done and their total, before the next begins. It may raise to
cancel."""


def checked_measure(spec: EmbeddingSpec, measure: Measure | None, model: str) -> Measure:
    """What the similarity is: as requested, or as the model's files say."""
    known = get_args(Measure)
    if measure is not None and measure not in known:
        raise InputError(f"Embeddings are compared by {listing(known)}, not by {measure!r}.")
    if measure is not None and (measure == LATE_INTERACTION) != spec.is_late:
        has = "one vector for each token" if spec.is_late else "one vector for each text"
        raise InputError(f"The embedding of {model} is {has}, so that texts cannot be compared by {measure!r}.")
    if measure is None and spec.measure not in known:
        raise InputError(
            f"{model} compares its embeddings by {spec.measure!r}, which is no sum over pairs of tokens. Ask for its cosine "
            f"or dot product: measure='cosine' (--measure cosine)."
        )
    return measure or cast(Measure, spec.measure)


@dataclass(frozen=True)
class Comparison:
    """A model with the description of its embedding, and how similarities are decomposed."""

    model: Model
    encoders: Encoders
    measure: Measure
    with_table: bool = True
    dtype: torch.dtype | None = None

    def datasets(
        self, first: TextInput, seconds: Sequence[TextInput], tell: Tell | None = None
    ) -> Iterator[xr.Dataset]:
        """The similarity of one text with each of several; what belongs to the one is computed once."""
        texts = [first, *seconds]
        facts = self._facts(texts)
        # The value is that of plain passes; without a table, for the sake of time, that of the passes that are captured.
        plain = self.encoders.embeddings(texts) if self.with_table else None
        recorded = self._recorded(texts if len(texts) == 2 else [first])
        decomposed = Decomposed(recorded[0])
        for index, second in enumerate(seconds):
            if tell is not None:
                tell(index, len(seconds))
            passage = recorded[1] if len(texts) == 2 else self._recorded([second])[0]
            own, other = (recorded[0].embedding, passage.embedding) if plain is None else (plain[0], plain[index + 1])
            value, matched = self._value(own, other, first, second)
            account, error = self._account(decomposed, Decomposed(passage), matched, value)
            described = (_described(first), _described(second))
            yield similarity_dataset(value, error, account, described, facts, self._matches(matched, own, other))

    def _recorded(self, texts: Sequence[TextInput]) -> list[RecordedText]:
        return self.encoders.by_encoder(texts, lambda each, some: record(each.model, each.spec, some, self.dtype))

    def _facts(self, texts: Sequence[TextInput]) -> dict[str, str | int | float]:
        specs = [self.encoders.encoder(text).spec for text in texts]
        facts = {**self.model.facts, "family": self.encoders.family, "measure": self.measure}
        facts["pooling"] = ", ".join(dict.fromkeys(spec.pooling for spec in specs))
        facts["embedding_source"] = specs[0].source
        logit = specs[0].logit
        if logit is not None and len({text.is_image for text in texts}) == 2 and self.measure == "cosine":
            facts |= {"logit_scale": logit[0], "logit_bias": logit[1]}
        return facts

    def value(self, own: Rows, other: Rows, first: TextInput, second: TextInput) -> float:
        """The similarity of two embeddings."""
        return self._value(own, other, first, second)[0]

    # ---- the value -----------------------------------------------------------------------------------------------------

    def _value(self, first: Rows, second: Rows, one: TextInput, other: TextInput) -> tuple[float, Interaction]:
        """The model's own similarity, of plain embeddings, and which of their rows meet."""
        if self.measure != LATE_INTERACTION:
            rows = torch.zeros(1, dtype=torch.long, device=first.device)
            met = Interaction(rows, rows, self._factor(first, second))
        else:
            met = _matched(first, second, one.scored, other.scored, mean=self.encoders.main.spec.mean_of_matches)
        products = first[met.first_rows].double() * second[met.second_rows].double()
        return float(products.sum()) * met.factor, met

    def _factor(self, first: Rows, second: Rows) -> float:
        if self.measure == "dot":
            return 1.0
        lengths = [float(each.double().norm()) for each in (first, second)]
        if not min(lengths) > 0:
            raise InputError("An embedding is zero, and has no cosine with another.")
        return 1 / (lengths[0] * lengths[1])

    def _matches(self, met: Interaction, first: Rows, second: Rows) -> Matches | None:
        if self.measure != LATE_INTERACTION:
            return None
        tokens, values = np.full(len(first), -1), np.zeros(len(first))
        places = met.first_rows.cpu().numpy()
        tokens[places] = met.second_rows.cpu().numpy()
        values[places] = ((first[met.first_rows] * second[met.second_rows]).sum(-1) * met.factor).cpu().numpy()
        return Matches(tokens, values)

    # ---- the account ---------------------------------------------------------------------------------------------------

    def _account(self, first: Decomposed, second: Decomposed, met: Interaction, value: float) -> tuple[Account, float]:
        if self.with_table:
            # The parts of the shorter text are carried forward, and pulled back through the other.
            if first.width <= second.width:
                cells = table(second, first, met.swapped).transposed
            else:
                cells = table(first, second, met)
            return _of_table(cells), self._checked(_error(value, cells), *cells.errors.tolist())
        shares = (
            shares_of(first.recorded, second.recorded, met),
            shares_of(second.recorded, first.recorded, met.swapped),
        )
        sums = [(each.shares.sum() + each.bias, each.shares.abs().sum() + each.bias.abs()) for each in shares]
        error = self._checked(*(abs(float(total) - value) / max(float(size), abs(value)) for total, size in sums))
        (one, other) = shares
        account = Account(
            first_share=_numpy(one.shares),
            second_share=_numpy(other.shares),
            first_bias=float(one.bias),
            second_bias=float(other.bias),
        )
        return account, error

    def _checked(self, *errors: float) -> float:
        """The worst of some relative errors; raises above the tolerance."""
        worst = max(errors)
        if not all(error <= self.model.tolerance for error in errors):  # also when one is NaN
            raise CompletenessError(
                f"Cells, margins and constant do not add up to the similarity that {self.model.name} gives: relative error "
                f"{worst:.2e}, tolerance {self.model.tolerance:.0e} for {self.model.facts['dtype']} weights. The table "
                f"would be wrong, so there is none."
            )
        return worst


def _error(value: float, cells: Table) -> float:
    parts = [each.double() for each in (cells.cells, cells.first_margin, cells.second_margin, cells.constant)]
    total, size = (sum(float(part.sum()) for part in each) for each in (parts, [part.abs() for part in parts]))
    return abs(total - value) / max(size, abs(value))


def _of_table(cells: Table) -> Account:
    return Account(
        table=_numpy(cells.cells),
        first_margin=_numpy(cells.first_margin),
        second_margin=_numpy(cells.second_margin),
        constant=float(cells.constant),
    )


def _matched(
    first: Rows, second: Rows, scored: Sequence[bool], candidates: Sequence[bool], *, mean: bool
) -> Interaction:
    """Every token of the first text that counts, with the best of the second."""
    rows = torch.tensor(scored, device=first.device).nonzero()[:, 0]
    choices = torch.tensor(candidates, device=second.device).nonzero()[:, 0]
    if not len(rows) or not len(choices):
        raise InputError("No token of one of the texts is matched by late interaction: all of them are skipped.")
    best = (first[rows] @ second[choices].T).argmax(-1)
    return Interaction(rows, choices[best], 1 / len(rows) if mean else 1.0)


def _described(text: TextInput) -> Text:
    return Text(text.text, text.prompt, text.sequence, text.is_prompt)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
