"""The cost of an analysis before it starts: operations, memory and time, counted from the sizes of a model.

`sizes` reads a model, `work` counts, `machine` measures the machine for a second, `estimate` puts them together. Nothing
here runs an analysis; counts follow the engine's own choices.
"""

from normscope.estimate.estimate import Asked, Estimate
from normscope.estimate.machine import Clock, Machine, calibrate
from normscope.estimate.sizes import BlockSizes, blocks_in
from normscope.estimate.work import Work

__all__ = ["Asked", "BlockSizes", "Clock", "Estimate", "Machine", "Work", "blocks_in", "calibrate"]
