"""The accuracy checks of kernels on the CPU, for Triton's interpreter."""

from __future__ import annotations

from asmtune.triton_api.interpreter import exact_floats
from tests.kernels.accuracy import differences, extras


def accuracy(name: str, dtype: str) -> dict[str, float]:
    """Return every comparison of a kernel with a dtype; "extra" stands for the further ones."""
    with exact_floats():
        found = extras(name, "cpu") if dtype == "extra" else differences(name, dtype, "cpu")
    # JSON has no infinity.
    return {what: min(error, 1e300) for what, error in found.items()}
