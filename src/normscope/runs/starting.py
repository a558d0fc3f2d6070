"""How a run over a corpus begins, whatever becomes of its results: the model, the folder, the corpus, and who computes."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from transformers import PreTrainedModel

from normscope.analyzer import Analyzer
from normscope.errors import InputError
from normscope.models.options import LoadingOptions, ModelOptions
from normscope.options import MOST_JOBS
from normscope.runs.cost import announce_costs
from normscope.runs.driver import Driver
from normscope.runs.engines import Engine, InProcess, Processes
from normscope.runs.folder import RunFolder, locked_folder, mirrored_folder
from normscope.runs.mirror import is_url
from normscope.runs.settings import Settings
from normscope.runs.spool import spooled

AnyModel = str | Path | PreTrainedModel | ModelOptions | Analyzer | None
"""A model as runs take it: as in `normscope.load`, an analyzer, or options; by default the embedded one."""


@dataclass(frozen=True)
class How:
    """What a run takes that its results do not depend on."""

    jobs: int = 1
    overwrite: bool = False
    progress: bool | None = False
    engine: Engine | None = None


@dataclass(frozen=True)
class Started:
    """A run whose corpus is read and whose folder is its own: nothing is computed yet."""

    driver: Driver
    folder: RunFolder
    record: dict[str, object]
    analyzer: Analyzer
    source: ModelOptions | None
    how: How
    began: float

    def compute(self) -> dict[str, dict[str, object]]:
        """Compute the shards that are missing, after what they cost was said; returns the costs."""
        expected = announce_costs(self.driver, printed=self.how.progress is not False)
        engine = self.how.engine or (InProcess(self.analyzer) if self.how.jobs == 1 else Processes(self.how.jobs))
        self.driver.compute(engine, self.source, progress=self.how.progress)
        return expected

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


@contextmanager
def started(
    settings: Settings, model: AnyModel, loading: LoadingOptions | None, out: str | Path | None, how: How
) -> Generator[Started]:
    """A run that is ready to compute, in a folder, at a URL, or (without `out`) in a folder of its own for a while."""
    source = source_of(model, loading, how.jobs)
    with ExitStack() as exits:
        folder = exits.enter_context(_folder(out))
        analyzer = model if isinstance(model, Analyzer) else Analyzer.from_options(cast(ModelOptions, source))
        spool = exits.enter_context(spooled(folder.path, settings.shard_size))
        driver = Driver(settings, analyzer, folder, spool)
        began = time.monotonic()
        record = driver.prepare(overwrite=how.overwrite)
        yield Started(driver, folder, record, analyzer, source, how, began)


@contextmanager
def _folder(out: str | Path | None) -> Generator[RunFolder]:
    """The folder in which a run works: that of a path, or one on this machine for a URL or for none."""
    if isinstance(out, str) and is_url(out):
        with mirrored_folder(out) as folder:
            yield folder
        return
    with ExitStack() as exits:
        path = exits.enter_context(TemporaryDirectory(prefix="normscope-run-")) if out is None else out
        yield exits.enter_context(locked_folder(Path(path)))


def source_of(model: AnyModel, loading: LoadingOptions | None, jobs: int) -> ModelOptions | None:
    """The options to load the model with; `None` for an analyzer."""
    if jobs < 1:
        raise InputError(f"jobs is at least 1, not {jobs}.")
    if jobs > MOST_JOBS:
        raise InputError(f"jobs is at most {MOST_JOBS}, not {jobs}: each process loads the model.")
    if isinstance(model, Analyzer | ModelOptions):
        if loading:
            raise InputError("The model already has its loading options: leave out `loading`.")
        source = model if isinstance(model, ModelOptions) else None
    else:
        source = ModelOptions.of(model, loading or {})
    if jobs > 1 and (source is None or source.is_live):
        raise InputError("Several processes each load the model: name it (or its folder) instead of passing it.")
    return source
