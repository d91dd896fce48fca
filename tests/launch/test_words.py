"""What launchers tell apart, against what Triton's own launcher does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

from asmtune.runtime.launch.planning import ParameterLayout, layout_of
from asmtune.triton_api.launching import CurrentStream
from tests.launch.fakes import Slow, launcher


@triton.jit
def typed(
    a,
    b,
    c: tl.int64,
    d: tl.float32,
    e,
    f: "*fp16",  # noqa: F722 - Triton's own way to write it
    g,
    B: tl.constexpr,
    C: tl.constexpr = 4,
):
    """Have a signature; it never runs."""


@triton.jit(do_not_specialize=["a"], do_not_specialize_on_alignment=["b", "e"])
def loose(a, b, c, d, e, f, g, B: tl.constexpr, C: tl.constexpr = 4):
    """Have a signature that asks for less; it never runs."""


BACKEND = make_backend(GPUTarget("cuda", 90, 32))
BUFFER = torch.zeros(4096, dtype=torch.uint8)
TENSORS = st.builds(
    lambda dtype, offset: BUFFER[offset : offset + 64].view(dtype),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.int64]),
    st.sampled_from([0, 8, 16, 24, 128]),
)
EDGES = [0, 1, -1, 2, 15, 16, 17, 32, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**62]
INTS = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**64 - 1))
ANY = st.one_of(
    TENSORS, INTS, st.booleans(), st.none(), st.floats(width=32), st.sampled_from([True, 1, 1.0])
)
CONSTANTS = st.one_of(
    INTS,
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.text(max_size=2),
    st.sampled_from([tl.float16, tl.float32, torch.float16, typed]),
)
ARGUMENTS = st.tuples(*[ANY] * 7, CONSTANTS, CONSTANTS)


def triton_key(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Give Triton's key of its compiled kernel, and the constexprs with their types."""
    binder = create_function_from_signature(function.signature, function.params, BACKEND)
    _, specialization, _ = binder(*arguments)
    constants = [(type(arguments[i]), arguments[i]) for i in (7, 8)]
    return repr(specialization[:7]), constants


def key_of(backend: Any, layout: ParameterLayout, arguments: tuple[Any, ...]) -> Any:
    """The words of a launch; None where it takes the slow path for good."""
    slow = Slow()
    launcher(backend, layout, slow)[(1,)](*arguments)
    return slow.calls[0][3]


@pytest.mark.slow
@pytest.mark.parametrize("function", [typed, loose], ids=["typed", "loose"])
@settings(max_examples=400)
@given(data=st.data())
def test_equal_words_mean_equal_kernels(function: Any, c_part: Any, data: st.DataObject) -> None:
    """Launches that a launcher takes for the same are the same to Triton, whatever they hold."""
    layout = layout_of(function.params)
    first = data.draw(ARGUMENTS)
    places = data.draw(st.sets(st.integers(0, 8), max_size=3))
    other = data.draw(ARGUMENTS)
    second = tuple(other[i] if i in places else first[i] for i in range(9))
    one, two = key_of(c_part, layout, first), key_of(c_part, layout, second)
    if one is not None and one == two:
        assert triton_key(function, first) == triton_key(function, second)


EVERY = [
    *EDGES,
    *(True, False, None, 1.0, 0.0),
    *(BUFFER[at : at + 64].view(kind) for at in (0, 8) for kind in (torch.float16, torch.bfloat16)),
]
EVERY_CONSTANT = [1, True, 1.0, 0, False, 0.0, None, "", "a", "b", tl.float16, tl.float32, 2**40]


@pytest.mark.parametrize("function", [typed, loose], ids=["typed", "loose"])
@pytest.mark.parametrize("place", range(9))
def test_every_class_of_argument_at_every_place(function: Any, c_part: Any, place: int) -> None:
    """Of all pairs of edge values at one place, those of equal words are equal to Triton."""
    layout = layout_of(function.params)
    everyday = (BUFFER, 7, 8, 0.5, None, BUFFER, 3, 128, 4)
    found: dict[Any, Any] = {}
    for value in EVERY if place < 7 else EVERY_CONSTANT:
        arguments = (*everyday[:place], value, *everyday[place + 1 :])
        words = key_of(c_part, layout, arguments)
        kernel = triton_key(function, arguments)
        assert found.setdefault(words, kernel) == kernel, value


class Pointer:
    """Not a tensor, but has a pointer."""

    dtype = torch.float16

    def data_ptr(self) -> int:
        """Aligned."""
        return 1024


@pytest.mark.parametrize(
    "odd",
    [Pointer(), 2**63, (1, 2), torch.ones(2).as_subclass(type("Own", (torch.Tensor,), {}))],
    ids=["data_ptr", "unsigned", "tuple", "subclass"],
)
def test_unusual_arguments_take_the_slow_path(c_part: Any, odd: Any) -> None:
    """What only Triton can read goes to Triton, at every launch."""
    layout = layout_of(typed.params)
    assert key_of(c_part, layout, (odd, 7, 8, 0.5, None, BUFFER, True, 128, 4)) is None


def test_a_tensor_elsewhere_takes_the_slow_path(c_part: Any) -> None:
    """A tensor that is not on the current device is looked at before it is launched with."""
    slow = Slow()
    made = launcher(
        c_part, layout_of(typed.params), slow, machine=CurrentStream(lambda: 0, lambda _: 0)
    )
    made[(1,)](BUFFER, 7, 8, 0.5, None, BUFFER, True, 128, 4)
    made[(1,)](3, 7, 8, 0.5, None, 5, True, 128, 4)
    assert [call[3] is None for call in slow.calls] == [True, False]
