"""What an analysis will take before it starts: operations, memory and time, counted from the sizes of a model.

`sizes` reads a model, `work` counts, `machine` measures the machine for a second, `estimate` puts them together. Nothing
here runs an analysis; counts follow the engine's own choices.
"""

from normscope.planner.estimate import Asked, Estimate
from normscope.planner.machine import Clock, Machine, calibrate
from normscope.planner.sizes import BlockSizes, blocks_in
from normscope.planner.work import Work

__all__ = ["Asked", "BlockSizes", "Clock", "Estimate", "Machine", "Work", "blocks_in", "calibrate"]
