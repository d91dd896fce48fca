"""The kernels that scores are judged on: they compile for an H200, and compute what they say."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import from_python_module
from asmtune.core.records.artifacts import Artifact
from tests.interpreter import Interpreter
from tests.test_families import interpreted_module

FOLDER = Path(__file__).parents[1] / "benchmarks" / "corpus" / "kinds"
NAMES = [m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not m.name.startswith("_")]


def kind(name: str) -> ModuleType:
    """A kernel module by its name."""
    return importlib.import_module(f"benchmarks.corpus.kinds.{name}")


def interpreted_error(name: str) -> float:
    """Error relative to the reference, at the module's small shape."""
    module = kind(name)
    return interpreted_module(module, module.SMALL)


def test_no_kind_is_a_family() -> None:
    """A kernel that scores are fitted to judges none."""
    families = {m.name for m in pkgutil.iter_modules([str(FOLDER.with_name("families"))])}
    assert not families & set(NAMES)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("name", NAMES)
def test_kind_computes_what_its_reference_says(name: str, interpreter: Interpreter) -> None:
    """A kernel run by Triton's interpreter agrees with its reference and stays in its tensors."""
    assert interpreter.call("tests.test_kinds:interpreted_error", name) < 5e-3


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("name", NAMES)
def test_kind_compiles_for_its_measurement(name: str, settings: Settings) -> None:
    """A space has 20 to 300 configs, and its first one compiles for an H200."""
    module = from_python_module(kind(name))
    for shape in module.shapes:
        module.check_shape(shape)
    configs = list(module.space().configs(**module.shapes[0]))
    assert 20 <= len(configs) <= 300
    problem = module.problem(module.shapes[0], module.dtypes[0], "meta")
    request = Lowering(problem, load_target("H200"), 60).request(configs[0])
    assert isinstance(compile_one(request, settings), Artifact)
