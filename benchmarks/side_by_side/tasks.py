"""Tasks: whole spaces of five kernels of the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Task:
    """A kernel on one shape.

    Attributes:
        kernel: name of its file.
        shape: the shape, as the file has it.
    """

    kernel: str
    shape: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Give the task as a mapping."""
        return {"kernel": self.kernel, "shape": self.shape}


TASKS: Final = (
    Task("gemm", {"M": 4096, "N": 4096, "K": 4096}),
    Task("layernorm", {"rows": 4096, "cols": 4096}),
    Task("gemm", {"M": 1024, "N": 16384, "K": 1024}),
    Task("broadcast_relu", {"P": 8192, "D": 4096}),
    Task("attention", {"B": 4, "H": 16, "N": 1024, "D": 64, "causal": False}),
    Task("layernorm", {"rows": 512, "cols": 4096}),
    Task("gemm_bias_gelu", {"M": 2048, "N": 4096, "K": 1024}),
    Task("broadcast_relu", {"P": 65536, "D": 256}),
)
"""Softmax is left out: one of its configs keeps a compiler without a limit busy for minutes."""
