"""What a bench and its child send each other means the same on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.compile.load import Binary, launch_values
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import import_module
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.accuracy import Bound
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import Opaque
from asmtune.measure.bench.base import BenchSetup, TimingCandidate, TimingSetup, TunerHooks
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy
from tests.bench.bench_support import artifact, problem, setup
from tests.compile.making import accepted
from tests.gpu import argument_kernels

US = st.floats(allow_nan=False)


@given(st.tuples(US, US, US), st.lists(US))
def test_results_arrive(times: tuple[float, float, float], samples: list[float]) -> None:
    """Every float of a measurement is what it was, and so is a failure."""
    config = Config({"BLOCK": 64})
    failure = Failure("check", "wrong_output", "y\nmore")
    for result in (Measurement(config, *times, tuple(samples)), failure):
        message = json.loads(json.dumps(messages.describe_result(result)))
        assert messages.result_of(message, config) == result


def double_all(values: Mapping[str, Any]) -> Any:
    """A reference of this module."""
    return values["x_ptr"] * 2


def test_the_setup_arrives() -> None:
    """All of it is equal in the child but what only the parent needs."""
    given_setup = BenchSetup(
        lowering=setup().lowering,
        effects=Effects(frozenset({"x"}), frozenset({"y"}), frozenset({"y"}), frozenset(), True),
        checks=CheckOptions(reference=double_all, tolerance=0.5, accuracy=Bound(p99=0.1, clip=0.0)),
        policy=TimingPolicy(mode="graph", spread=0.1),
        seed=7,
        do_bench=double_all,
        hooks=TunerHooks(double_all, double_all),
        alternatives={"double": double_all},
    )
    received = messages.setup_of(messages.setup_text(given_setup))
    assert type(received) is TimingSetup
    for part in fields(TimingSetup):
        assert getattr(received, part.name) == getattr(given_setup, part.name)


def test_hooks_share_in_the_child_what_they_share_here() -> None:
    """What one hook puts into a closure, the other takes from there, in the child as well."""
    kept: dict[str, Any] = {}

    def before(values: dict[str, Any]) -> None:
        kept.update(values)

    def after(values: dict[str, Any], exception: Exception | None) -> None:
        values["found"] = kept.pop("x")

    given_setup = replace(setup(), hooks=TunerHooks(before, after))
    hooks = messages.setup_of(messages.setup_text(given_setup)).hooks
    assert hooks.pre is not None
    assert hooks.post is not None
    hooks.pre({"x": 5})
    values: dict[str, Any] = {}
    hooks.post(values, exception=None)
    assert values == {"found": 5}


def test_a_module_that_the_child_lacks_is_told() -> None:
    """A function that cannot be loaded names itself and the way out."""
    text = messages.pickled_function(double_all, "reference=")
    with pytest.raises(InputError, match=r"reference= cannot be loaded.*isolate=False"):
        messages.unpickled(text[:-8], "reference=")


def test_functions_of_a_file_travel_whole(tmp_path: Path) -> None:
    """A hook of a file that was named by its path, and what it calls, needs no module there."""
    file = tmp_path / "hooked.py"
    file.write_text(
        "import math\nBASE = {'x': 5}\ndef _own(x):\n    return math.floor(x) + BASE['x']\n"
        "def hook(values):\n    values['x'] = _own(values['x'])\n"
    )
    text = messages.pickled_function(import_module(str(file)).hook, "pre_hook=")
    program = (
        "import sys; from asmtune.measure.bench.messages import unpickled;"
        "values = {'x': 2.5}; unpickled(sys.stdin.read(), 'pre_hook=')(values); print(values)"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "{'x': 7}\n"), ran.stderr


def sent(given_problem: Problem, config: Config, binary: Any = None) -> messages.SentCandidate:
    """Send a config with a binary to the child."""
    candidate = TimingCandidate(config, artifact(b"code"))
    described = messages.SentCandidate.of(given_problem, candidate, binary)
    received = messages.unpickled(messages.pickled(described, "a config"), "a config")
    assert isinstance(received, messages.SentCandidate)
    return received


def test_configs_arrive() -> None:
    """Values, options, hook and file; what the launch has beyond the arguments goes along."""
    config = Config({"MODE": "good", "US": 1.5}, 8, 2, 1, 64, print, "/here/edited.ptx")
    named = config.with_alternative("other")
    assert sent(problem(), config).config(print) == config
    assert sent(problem(), named).config(print) == named
    options = {"num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": 64}
    own = {"MODE": "good", "US": 1.5, **options, "ir_override": "/here/edited.ptx"}
    assert sent(problem(), config).launch_values({"n": 8}) == {"n": 8, **own}


def test_a_config_of_functions_stays_one_of_its_own() -> None:
    """Axes over `@triton.jit` functions cannot travel, but their configs stay apart."""
    first, second = (
        sent(problem(), Config({"MODE": function, "US": 1.0})).config(None)
        for function in (argument_kernels.twice, argument_kernels.mixed)
    )
    assert isinstance(first.kwargs["MODE"], Opaque)
    assert len({first, second}) == 2


@pytest.mark.parametrize("which", ["mixed", "descriptors", "made on the device"])
def test_binaries_arrive(which: str, target: Target, settings: Settings) -> None:
    """A real kernel's code, types and grid are what they were; Triton's handle is made of them."""
    problem_, (config, *_) = argument_kernels.problems("cpu")[which]
    lowering = Lowering(problem_, target, 30)
    request = accepted(lowering, config)
    compiled = compile_one(request, settings)
    binary = Binary.of(lowering, config, compiled)
    assert isinstance(binary, Binary)
    arrived = sent(problem_, config, binary).binary
    assert arrived == binary
    assert arrived.compiled().kernel == compiled.cubin
    values = launch_values(problem_, config)
    assert list(arrived.signature) == [name for name in values if name in arrived.signature]
