"""Real weights end to end: a small Llama (stories15M)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.stories import ONCE_UPON_A_TIME, fetched

import normscope as ns


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> ns.Analyzer:
    return ns.load(fetched(tmp_path_factory.mktemp("stories")))


@pytest.mark.slow
def test_a_real_causal_model_tells_stories_and_is_complete(stories: ns.Analyzer) -> None:
    prompt = torch.tensor([ONCE_UPON_A_TIME])
    story = stories.model.generate(prompt, max_new_tokens=40, do_sample=False)  # type: ignore[operator]
    assert len(set(story[0].tolist())) > 20, "real weights do not babble"
    analysis = stories.analyze({"input_ids": story})
    assert float(analysis.completeness.max()) < 1e-5
    for scope in stories.scopes:
        values = analysis.map(scope).values
        assert np.isnan(values[:, *np.triu_indices(values.shape[1], 1)]).all()
        assert np.isfinite(values[:, *np.tril_indices(values.shape[1])]).all()


@pytest.mark.slow
def test_the_first_token_of_a_real_causal_model_is_a_sink_by_weights_and_less_by_norms(stories: ns.Analyzer) -> None:
    story = stories.model.generate(torch.tensor([ONCE_UPON_A_TIME]), max_new_tokens=40, do_sample=False)  # type: ignore[operator]
    analysis = stories.analyze({"input_ids": story}, scopes=["AttnW", "Attn"])
    to_first = {
        scope: analysis.normalised(scope).isel(key=0, query=slice(5, None)).mean() for scope in ("AttnW", "Attn")
    }
    assert float(to_first["Attn"]) < float(to_first["AttnW"])
