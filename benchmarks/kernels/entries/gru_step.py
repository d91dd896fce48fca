"""A GRU layer with a launch for each time step against cuDNN."""

from __future__ import annotations

from benchmarks.kernels.entries._gru import cudnn
from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.nn.GRU",
    vendor_kind="vendor library",
    vendor=cudnn,
    group="by steps",
    dtypes=("fp16", "fp32"),
)
