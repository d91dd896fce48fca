"""Kernels that scores are learnt from and judged on: their sizes, and that they compile."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from asmtune.core.kernel_module import KernelModule, from_python_module

CORPUS = Path(__file__).parents[1] / "benchmarks" / "corpus"
MODULES = [
    f"{folder}.{found.name}"
    for folder in ("families", "kinds")
    for found in pkgutil.iter_modules([str(CORPUS / folder)])
]


def corpus(name: str) -> KernelModule:
    """A kernel module by its folder and name."""
    return from_python_module(importlib.import_module(f"benchmarks.corpus.{name}"))


def test_no_kernel_judges_what_it_taught() -> None:
    """A kernel that scores are fitted to is no kind that they are judged on."""
    names = [name.partition(".")[2] for name in MODULES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", MODULES)
def test_kernel_fits_its_measurement(name: str) -> None:
    """Every shape has 60 to 300 configs, of kinds 20, and tensors of less than 1 GB in all."""
    module = corpus(name)
    least = 20 if name.startswith("kinds.") else 60
    for shape in module.shapes:
        module.check_shape(shape)
        assert least <= len(list(module.space().configs(**shape))) <= 300
        arguments = module.problem(shape, module.dtypes[0], "meta").arguments.values()
        # A tensor descriptor has its tensor as `base`.
        tensors = [v.base if hasattr(v, "block_shape") else v for v in arguments]
        assert sum(t.nbytes for t in tensors if hasattr(t, "nbytes")) < 1e9
