"""What a bench and its child say to each other means the same on both sides."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.compile.load import Binary, launch_values
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import import_module
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.accuracy import Bound
from asmtune.measure.bench import messages
from asmtune.measure.bench.argument_codec import Opaque
from asmtune.measure.bench.base import BenchSetup
from asmtune.measure.bench.child_supervisor import ConfigTable
from asmtune.measure.bench.hooks import TunerHooks
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy
from tests.bench.bench_support import entrant, problem, setup
from tests.gpu import argument_kernels

US = st.floats(allow_nan=False)


def sent(message: Any) -> Any:
    """A message after its journey through a pipe."""
    return json.loads(json.dumps(message))


@given(st.tuples(US, US, US), st.lists(US))
def test_timings_arrive_bit_for_bit(
    times: tuple[float, float, float], samples: list[float]
) -> None:
    """Every float of a measurement is what it was."""
    config = Config({"BLOCK": 64})
    result = Measurement(config, *times, tuple(samples))
    assert messages.result_of(sent(messages.describe_result(result)), config) == result


def test_failures_arrive() -> None:
    """Stage, kind and detail."""
    failure = Failure("check", "wrong_output", "y\nmore")
    assert messages.result_of(sent(messages.describe_result(failure)), Config({})) == failure


def double_all(values: Mapping[str, Any]) -> Any:
    """A reference of this module."""
    return values["x_ptr"] * 2


def told(values: Mapping[str, Any], exception: Exception | None) -> None:
    """A hook of this module."""


def in_milliseconds(kernel_call: Any, quantiles: Any) -> float:
    """A clock of this module."""
    return 1.0


def test_the_setup_arrives() -> None:
    """Effects, checks with a reference, the policy, hooks and clock are equal in the child."""
    given_setup = BenchSetup(
        lowering=setup().lowering,
        effects=Effects(frozenset({"x"}), frozenset({"y"}), frozenset({"y"}), frozenset(), True),
        checks=CheckOptions(
            reference=double_all,
            restore_value=("x",),
            reset_to_zero=("y",),
            tolerance=0.5,
            accuracy=Bound(p99=0.1, clip=0.0),
        ),
        policy=TimingPolicy(mode="graph", spread=0.1),
        seed=7,
        do_bench=in_milliseconds,
        hooks=TunerHooks(double_all, told),
    )
    received = messages.setup_of(sent(messages.describe_setup(given_setup)))
    assert received.effects == given_setup.effects
    assert received.checks == given_setup.checks
    assert received.plan == given_setup.plan
    assert received.hooks == given_setup.hooks


def test_hooks_share_in_the_child_what_they_share_here() -> None:
    """What one hook puts into a closure, the other takes from there, in the child as well."""
    kept: dict[str, Any] = {}

    def before(values: dict[str, Any]) -> None:
        kept.update(values)

    def after(values: dict[str, Any], exception: Exception | None) -> None:
        values["found"] = kept.pop("x")

    given_setup = replace(setup(), hooks=TunerHooks(before, after))
    hooks = messages.setup_of(sent(messages.describe_setup(given_setup))).hooks
    assert hooks.pre is not None
    assert hooks.post is not None
    hooks.pre({"x": 5})
    values: dict[str, Any] = {}
    hooks.post(values, exception=None)
    assert values == {"found": 5}


def test_a_module_that_the_child_lacks_is_told() -> None:
    """A function that cannot be loaded names itself and the way out."""
    text = messages.pickled(double_all, "reference=").encode()
    with pytest.raises(InputError, match=r"reference= cannot be loaded.*isolate=False"):
        messages.unpickled(text[:-8].decode(), "reference=")


def test_functions_of_a_file_travel_whole(tmp_path: Path) -> None:
    """A hook of a file that was named by its path, and what it calls, needs no module there."""
    file = tmp_path / "hooked.py"
    file.write_text(
        "import math\nBASE = {'x': 5}\ndef _own(x):\n    return math.floor(x) + BASE['x']\n"
        "def hook(values):\n    values['x'] = _own(values['x'])\n"
    )
    text = messages.pickled(import_module(str(file)).hook, "pre_hook=")
    program = (
        "import sys; from asmtune.measure.bench.messages import unpickled;"
        "values = {'x': 2.5}; unpickled(sys.stdin.read(), 'pre_hook=')(values); print(values)"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "{'x': 7}\n"), ran.stderr


def test_configs_arrive() -> None:
    """Values, options, hook and file; what the launch has beyond the arguments goes along."""
    config = Config({"MODE": "good", "US": 1.5}, 8, 2, 1, 64, print, "/here/edited.ptx")
    message = sent(messages.describe_config(problem(), config))
    assert messages.config_of(message, print) == config
    options = {"num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": 64}
    own = {"MODE": "good", "US": 1.5, **options, "ir_override": "/here/edited.ptx"}
    assert messages.extra_values(message) == own


def test_a_config_of_functions_stays_one_of_its_own() -> None:
    """Axes over `@triton.jit` functions cannot travel, but their configs stay apart."""
    first, second = (
        messages.config_of(sent(messages.describe_config(problem(), config)), None)
        for config in (
            Config({"MODE": argument_kernels.twice, "US": 1.0}),
            Config({"MODE": argument_kernels.mixed, "US": 1.0}),
        )
    )
    assert isinstance(first.kwargs["MODE"], Opaque)
    assert first != second
    assert hash(first) != hash(second)


@pytest.mark.parametrize("which", ["mixed", "descriptors", "made on the device"])
def test_binaries_arrive(which: str, target: Target, settings: Settings) -> None:
    """A real kernel's code, types and grid are what they were; Triton's handle is made of them."""
    problem_, (config, *_) = argument_kernels.problems("cpu")[which]
    lowering = Lowering(problem_, target, 30)
    request = lowering.request(config)
    assert isinstance(request, LowerRequest)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    binary = Binary.of(lowering, config, artifact)
    assert isinstance(binary, Binary)
    arrived = messages.binary_of(sent(messages.describe_binary(binary)))
    assert arrived == binary
    assert arrived.compiled().kernel == artifact.cubin
    values = launch_values(problem_, config)
    assert list(arrived.signature) == [name for name in values if name in arrived.signature]


def test_a_config_keeps_its_number() -> None:
    """The same config has the same number in every request; a hook is sent with its users."""

    class Touched:
        touched = False

    def hook(_: object) -> None:
        """Do nothing."""

    table = ConfigTable(setup().lowering, Touched())  # type: ignore[arg-type]
    entrants = [entrant("good"), entrant("print"), entrant("good", pre_hook=hook), entrant("good")]
    numbers = [table.number(one) for one in entrants]
    assert numbers == [0, 1, 2, 0]
    plain, hooked = table.describe(0), table.describe(2)
    assert not isinstance(plain, Failure)
    assert not isinstance(hooked, Failure)
    assert table.request("trial", [plain])["hooks"] == {}
    (text,) = table.request("trial", [plain, hooked])["hooks"].values()
    assert messages.unpickled(text, "hook")(torch.ones(1)) is None
