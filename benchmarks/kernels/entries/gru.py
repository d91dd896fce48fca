"""A GRU layer against cuDNN, and against a launch for each time step.

`gru_step` is timed as its user calls it: one launch a step from Python, the product of the
inputs with it. In mode "events" that is the time that the GPU takes between two events, idle or
not; in mode "graph" the launches cost the GPU's time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from asmtune.kernels.gru_step import gru_step
from benchmarks.kernels.entries._gru import cudnn
from benchmarks.kernels.entry import Entry, Inputs


def by_steps(given: Inputs) -> Callable[[], Any]:
    """Run all steps, a launch each; tuned before any is timed."""
    launch = partial(gru_step, **given)
    launch()
    return launch


ENTRY = Entry(
    vendor_name="torch.nn.GRU",
    vendor_kind="vendor library",
    vendor=cudnn,
    group="recurrent",
    others={"steps": by_steps},
    dtypes=("fp16", "fp32"),
)
