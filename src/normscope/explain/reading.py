"""Where a value is read off the last layer: which tokens' states the head looks at, and along which direction.

For methods that go through the layers forwards, or by maps, and need only this of the prediction.
"""

from __future__ import annotations

from normscope.explain.asked import Asked
from normscope.explain.recording import Played, Recording


def read_off(asked: Asked, *, max_memory: int | None) -> tuple[Played, Recording]:
    """One pass through the model: the values asked about, and its recording, which keeps as many layers as memory holds."""
    request = asked.request
    recording = Recording(asked.analyzer, asked.sequence, request.dtype, max_memory, request.tell, request.baseline)
    return recording.play(asked.question), recording
