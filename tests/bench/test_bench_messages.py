"""What a bench and its child say to each other means the same on both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.bench import BenchSetup, messages
from asmtune.bench.roster import Roster
from asmtune.bench.wire import Opaque
from asmtune.compile import Lowering, Request, compile_one
from asmtune.compile.load import Binary, handle, launch_values
from asmtune.config import Config
from asmtune.errors import InputError
from asmtune.measure import CheckOptions, Effects, TimingPolicy
from asmtune.records import Artifact, Failure, Measurement
from asmtune.settings import Settings
from asmtune.target import Target
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


def test_the_setup_arrives() -> None:
    """Effects, checks with a reference, and the policy are equal objects in the child."""
    given_setup = BenchSetup(
        lowering=setup().lowering,
        effects=Effects(frozenset({"x"}), frozenset({"y"}), frozenset({"y"}), frozenset(), True),
        checks=CheckOptions(
            reference=double_all, restore_value=("x",), reset_to_zero=("y",), tolerance=0.5
        ),
        policy=TimingPolicy(mode="graph", spread=0.1),
        seed=7,
    )
    message = sent(messages.describe_setup(given_setup))
    effects, checks, policy = messages.setup_of(message)
    assert (effects, policy, message["seed"]) == (given_setup.effects, given_setup.policy, 7)
    assert checks == given_setup.checks


def test_a_module_that_the_child_lacks_is_told() -> None:
    """A function that cannot be loaded names itself and the way out."""
    text = messages.pickled(double_all, "reference=").encode()
    with pytest.raises(InputError, match=r"reference= cannot be loaded.*isolate=False"):
        messages.unpickled(text[:-8].decode(), "reference=")


def test_configs_arrive() -> None:
    """Values, options and the hook; what the launch has beyond the arguments goes along."""
    config = Config({"MODE": "good", "US": 1.5}, 8, 2, 1, 64, pre_hook=print)
    message = sent(messages.describe_config(problem(), config))
    assert messages.config_of(message, print) == config
    own = {"MODE": "good", "US": 1.5, "num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": 64}
    assert messages.own_values(message) == own


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
    assert isinstance(request, Request)
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact)
    binary = Binary.of(lowering, config, artifact)
    assert isinstance(binary, Binary)
    arrived = messages.binary_of(sent(messages.describe_binary(binary)))
    assert arrived == binary
    assert handle(arrived).kernel == artifact.cubin
    values = launch_values(problem_, config)
    assert list(arrived.signature) == [name for name in values if name in arrived.signature]


def test_a_config_keeps_its_number() -> None:
    """The same config has the same number in every request; a hook is sent with its users."""

    class Touched:
        touched = False

    def hook(_: object) -> None:
        """Does nothing."""

    roster = Roster(setup().lowering, Touched())  # type: ignore[arg-type]
    entrants = [entrant("good"), entrant("print"), entrant("good", pre_hook=hook), entrant("good")]
    numbers = [roster.number(one) for one in entrants]
    assert numbers == [0, 1, 2, 0]
    plain, hooked = roster.describe(0), roster.describe(2)
    assert not isinstance(plain, Failure)
    assert not isinstance(hooked, Failure)
    assert roster.request("trial", [plain])["hooks"] == {}
    (text,) = roster.request("trial", [plain, hooked])["hooks"].values()
    assert messages.unpickled(text, "hook")(torch.ones(1)) is None
