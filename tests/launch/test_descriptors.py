"""Launches of tensor descriptors: the driver gets what Triton's own launcher gives it."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.backends.nvidia import driver as nvidia
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia import hopper
from triton.runtime.driver import driver as triton_driver
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.core.config import Config
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.launch.planning import TritonLaunch, kinds, layout_of, plan_of
from asmtune.triton_api.jit_functions import parameters
from tests.launch.fakes import FACTS, FakeDriver, Slow, launcher
from tests.launch.test_planning import compiled

LAYOUT = NVMMASharedLayout(128, 16, 2)


@triton.jit
def copied(source, target, n, SIZE: tl.constexpr):
    """Copy a tile by the copy engine, `n` rows further."""
    at = [tl.program_id(0) * SIZE + n, 0]
    target.store(at, source.load(at))


class Planned:
    """A kernel over the fake driver, which has met one launch.

    Attributes:
        slow: the launches that came to the slow path.
        plan: the plan, and `kernel` its compiled kernel.
    """

    def __init__(self, part: Any, first: dict[str, Any], arch: int = 90, **parts: Any) -> None:
        self.hook = parts.pop("hook", None)
        self.slow = Slow()
        self.part, self.chosen = part, {"SIZE": 64, **parts}
        self.launcher = launcher(part, layout_of(parameters(copied)), self.slow)
        self(**first)
        *_, key, held, _ = self.slow.calls.pop()
        if self.hook is not None:
            self.hook(first | self.chosen)
        options = {name: value for name, value in self.chosen.items() if name != "SIZE"}
        self.kernel = compiled(copied, {**first, "SIZE": 64}, arch, **options)
        config = Config({"SIZE": 64}, pre_hook=self.hook)
        launched = TritonLaunch(copied, self.kernel, first, self.chosen, config)
        self.plan = plan_of(part, launched, kinds())
        assert self.plan.function
        self.launcher.keep(key, self.plan, held)

    def __call__(self, **arguments: Any) -> Any:
        """Launch five programs."""
        return self.launcher[(5,)](**arguments)

    def expected(self, *descriptors: Any, n: int = 3) -> list[Any]:
        """List what Triton's own launcher makes of the arguments: bytes, or a map's facts."""
        listed: list[Any] = []
        types = list(self.kernel.src.signature.values())
        maps = self.kernel.metadata.tensordesc_meta or [None] * len(descriptors)
        for descriptor, described in zip(descriptors, maps, strict=True):
            first, *rest = parts_of(descriptor, described)
            rank = len(descriptor.shape)
            if described is None:
                wide, flags = rest[: 2 * rank], rest[2 * rank : -2 * rank]
                listed += [struct.pack("<Q", first.data_ptr())]
                listed += [struct.pack("<q", one) for one in wide]
                listed += [struct.pack("<?", flag) for flag in flags]
                rest = rest[-2 * rank :]
            else:
                listed.append(first)
            listed += [struct.pack("<i", one) for one in rest[:rank]]
            listed += [struct.pack("<q", one) for one in rest[rank:]]
        listed += [struct.pack("<i", n)] if types[2] == "i32" else []
        return [*listed, bytes(8), bytes(8)]


def parts_of(descriptor: Any, described: Any) -> list[Any]:
    """Return what Triton's launcher makes of a descriptor; since 3.8 it is given one thing more."""
    make = nvidia.make_tensordesc_arg
    more = len(inspect.signature(make).parameters) - 2
    return [*make(descriptor, described, *[None] * more)]


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Triton's utilities say what they are asked, in the driver's order of axes."""

    def fill(address: int, swizzle: int, size: int, dtype: int, *rest: Any) -> Any:
        box, shape, strides, padding = rest
        return SimpleNamespace(
            address=address,
            shape=[*reversed(shape)],
            strides=[size * one for one in reversed(strides[:-1])],
            box=[*reversed(box)],
            dtype=dtype,
            rank=len(shape),
            swizzle=swizzle,
            promotion=2,
            fill=padding,
        )

    names = ("fill_tma_descriptor", "fill_tma_descriptor_tiled")  # of Triton 3.6, and since 3.7
    utils = dict.fromkeys(names, fill) | {"unload_module": id}  # kernels end so, since Triton 3.8
    active = SimpleNamespace(utils=SimpleNamespace(**utils))
    monkeypatch.setattr(triton_driver, "_active", active)


def check(driver: FakeDriver, expected: list[Any]) -> None:
    """Compare the last launch's parameters with what Triton would have given."""
    for place, (got, wanted) in enumerate(zip(driver.parameters(), expected, strict=True)):
        if isinstance(wanted, bytes):
            assert got == wanted.ljust(8, b"\0"), place
            continue
        made = driver.map(place)
        for name, value in vars(wanted).items():
            found = getattr(made, name)
            known = list(found)[: len(value)] if isinstance(value, list) else found
            assert known == value, (place, name)


def widths(expected: list[Any]) -> list[int]:
    """Give the bytes of each parameter."""
    return [len(one) if isinstance(one, bytes) else 128 for one in expected]


def describe(rows: int = 256, block: int = 64, dtype: Any = torch.float16, **more: Any) -> Any:
    """Describe a new tensor."""
    tensor = torch.zeros(rows, 128, dtype=dtype)
    return TensorDescriptor.from_tensor(tensor, [block, 64], **more)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float8_e5m2, torch.int8])
def test_the_driver_gets_what_triton_gives(
    c_part: Any, driver: FakeDriver, arch: int, dtype: torch.dtype
) -> None:
    """Maps, or addresses and extents where there is no copy engine, reach the kernel."""
    first = describe(dtype=dtype), describe(dtype=dtype)
    made = Planned(c_part, {"source": first[0], "target": first[1], "n": 3}, arch)
    others = describe(128, dtype=dtype), describe(384, dtype=dtype)
    for source, target in (first, others, first):
        expected = made.expected(source, target, n=7)
        driver.expect(widths(expected))
        made(source=source, target=target, n=7)
        assert not made.slow.calls
        check(driver, expected)
        assert list(driver.noted.sizes)[:2] == [5, 1]


@pytest.mark.usefixtures("filled")
def test_views_and_padding(c_part: Any, driver: FakeDriver) -> None:
    """A view's address and strides are its own; what lies outside may be NaN."""
    base = torch.zeros(512, 256, dtype=torch.float16)
    made = Planned(c_part, {"source": describe(), "target": describe(), "n": 3})
    for view in (base[8:200, 64:192], base[:64, :72], base[1::2, 8:]):
        for padding in ("zero", "nan"):
            source = TensorDescriptor.from_tensor(view, [64, 64], padding=padding)
            expected = made.expected(source, source)
            driver.expect(widths(expected))
            made(source=source, target=source, n=3)
            assert not made.slow.calls
            check(driver, expected)


def test_a_map_is_made_once(c_part: Any, driver: FakeDriver) -> None:
    """The same tensor, in a new descriptor, needs no new map."""
    source, target = describe(), describe()
    made = Planned(c_part, {"source": source, "target": target, "n": 3})
    driver.expect([8])
    made(source=source, target=target, n=3)
    before = driver.noted.encodings
    again = TensorDescriptor.from_tensor(source.base, [64, 64])
    made(source=again, target=target, n=3)
    assert driver.noted.encodings == before
    made(source=describe(), target=target, n=3)
    assert driver.noted.encodings == before + 1
    assert not made.slow.calls


@pytest.mark.usefixtures("filled")
def test_a_hook_sets_the_block(c_part: Any, driver: FakeDriver) -> None:
    """A config's hook gives descriptors their block, as Triton's tutorials do."""

    def hook(values: dict[str, Any]) -> None:
        values["source"].block_shape = values["target"].block_shape = [values["SIZE"], 64]

    made = Planned(c_part, {"source": describe(block=1), "target": describe(block=1), "n": 3},
                   hook=hook)  # fmt: skip
    source, target = describe(block=1), describe(block=1)
    driver.expect([128, 4, 4, 8, 8, 128, 4, 4, 8, 8, 4, 8, 8])
    made(source=source, target=target, n=3)
    assert not made.slow.calls
    assert source.block_shape == [64, 64]
    check(driver, made.expected(source, target))


OTHERS: dict[str, Callable[[], Any]] = {
    "another block": lambda: describe(block=32),
    "another dtype": lambda: describe(dtype=torch.float32),
    "a tensor": lambda: torch.zeros(256, 128, dtype=torch.float16),
    "an extent of 0": lambda: changed(describe(), shape=[0, 128]),
    "a step along the last axis": lambda: changed(describe(), strides=[128, 2]),
    "a block of three": lambda: changed(describe(), block_shape=[48, 64]),
    "an extent that is no number": lambda: changed(describe(), shape=["x", 128]),
    "another rank": lambda: changed(describe(), shape=[256]),
    "no padding": lambda: changed(describe(), padding=None),
    "a subclass": lambda: type("Own", (TensorDescriptor,), {})(*vars(describe()).values()),
}


def changed(descriptor: Any, **values: Any) -> Any:
    """Change a descriptor after it was made, where nothing checks it."""
    vars(descriptor).update(values)
    return descriptor


@pytest.mark.parametrize("other", OTHERS)
def test_another_descriptor_takes_the_slow_path(
    c_part: Any, driver: FakeDriver, other: str
) -> None:
    """What the plan was not made for, or what Triton refuses, is Triton's to launch."""
    made = Planned(c_part, {"source": describe(), "target": describe(), "n": 3})
    launches = driver.noted.launches
    assert made(source=OTHERS[other](), target=describe(), n=3) == "slow"
    assert driver.noted.launches == launches


def test_a_hook_that_sets_another_block(c_part: Any, driver: FakeDriver) -> None:
    """Where the hook now gives another block than the kernel was compiled for, Triton launches."""
    size = [64]

    def hook(values: dict[str, Any]) -> None:
        values["source"].block_shape = values["target"].block_shape = [size[0], 64]

    made = Planned(c_part, {"source": describe(), "target": describe(), "n": 3}, hook=hook)
    size[0], launches = 32, driver.noted.launches
    assert made(source=describe(), target=describe(), n=3) == "slow"
    assert driver.noted.launches == launches


def test_layouts_of_gluon(c_part: Any, driver: FakeDriver) -> None:
    """An equal layout is the plan's, another one is not."""

    def laid(layout: Any = LAYOUT) -> Any:
        return hopper.TensorDescriptor.from_tensor(
            torch.zeros(256, 128, dtype=torch.float16), [64, 64], layout
        )

    source, other = laid(), NVMMASharedLayout(64, 16, 2)
    slow, plans = Slow(), []
    of = layout_of(parameters(copied))
    start = launcher(c_part, of, slow)
    start[(1,)](source, source, 3, 64)
    *_, key, held, _ = slow.calls.pop()
    part = (0, 0, 0)
    for layout in (LAYOUT, other):
        described = ((0, (64, 64), layout, (3, 2, 6, (64, 64), False)),)
        facts = (9, 128, 0, ((11, *part[1:]),), (c_part.GIVEN,) * 4, "kernel", "config", ())
        rest = (print, (), None, {}, (0, 1, None), (1, 0, 0), described)
        plans.append(c_part.Plan(*facts, *rest))
    driver.expect([128])
    start.keep(key, plans[0], held)
    assert start[(1,)](laid(NVMMASharedLayout(128, 16, 2)), source, 3, 64) == "kernel"
    start.keep(key, plans[1], held)
    assert start[(1,)](laid(), source, 3, 64) == "slow"


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({"num_ctas": 2}, [[4, 2, 1, 1], [5, 1, 0, 0]]),
        ({"launch_pdl": True}, [[6, 1, 0, 0]]),
        ({"launch_cooperative_grid": True}, [[2, 1, 0, 0]]),
    ],
)
def test_attributes_of_a_launch(
    c_part: Any, driver: FakeDriver, options: dict[str, Any], attributes: list[list[int]]
) -> None:
    """Clusters, dependent and cooperative launches are made as Triton makes them."""
    made = Planned(c_part, {"source": describe(), "target": describe(), "n": 3}, **options)
    driver.expect([8])
    made(source=describe(), target=describe(), n=3)
    assert not made.slow.calls
    assert driver.attributes() == attributes
    assert list(driver.noted.sizes)[:3] == [5 * options.get("num_ctas", 1), 1, 1]


def test_memory_for_descriptors_that_a_kernel_makes(c_part: Any, driver: FakeDriver) -> None:
    """It comes from the allocator of now, for each launch, and is freed after it."""
    asked: list[Any] = []
    memory: list[Any] = [torch.zeros(4096, dtype=torch.int8)]

    def allocator(size: int, alignment: int, stream: int) -> Any:
        asked.append((size, alignment, stream))
        return memory[0]

    slow = Slow()
    start = launcher(c_part, layout_of(parameters(copied)), slow)
    x = torch.zeros(64)
    start[(3, 2)](x, x, 3, 64)
    *_, key, held, _ = slow.calls.pop()
    slots = ((0, 0, 0), (0, -1, 0), (0, -1, 0))
    facts = (9, 128, 0, slots, (c_part.GIVEN,) * 4, "kernel", "config", ())
    plan = c_part.Plan(*facts, print, (), None, {}, (128, 16, lambda: allocator))
    start.keep(key, plan, held)
    driver.expect([8, 8, 8])
    assert start[(3, 2)](x, x, 3, 64) == "kernel"
    assert asked == [(6 * 128, 16, 77)]
    assert struct.unpack("<Q", driver.parameters()[1]) == (memory[0].data_ptr(),)
    for other, address in ((1 << 40, 1 << 40), (None, 0)):  # as Triton takes them
        memory[0] = other
        assert start[(3, 2)](x, x, 3, 64) == "kernel"
        assert struct.unpack("<Q", driver.parameters()[1]) == (address,)
    memory.clear()
    with pytest.raises(IndexError):
        start[(3, 2)](x, x, 3, 64)


def test_a_plan_has_the_block_that_was_compiled(c_part: Any) -> None:
    """A grid function may change a descriptor after the kernel was chosen."""
    source = describe()
    made = Planned(c_part, {"source": source, "target": describe(), "n": 3})
    given = {"source": changed(source, block_shape=[32, 64]), "target": describe(), "n": 3}
    launched = TritonLaunch(copied, made.kernel, given, made.chosen, Config({"SIZE": 64}))
    plan = plan_of(FACTS, launched, kinds())
    assert plan is not None
    assert [block for _, block, _, _ in plan.descriptors] == [(64, 64), (64, 64)]


def test_other_memory_of_a_descriptor_is_seen() -> None:
    """A launch whose descriptor gets a tensor of another class on the way has no plan."""
    source = describe()
    call = KernelCall((1,), (source, 3), {}, ["source", "n"])
    before = call.tensor_classes()
    assert before == [(torch.float16, True, torch.device("cpu"))]
    shifted = KernelCall((1,), (source.base.view(-1)[4:], 3), {}, ["source", "n"])
    assert shifted.tensor_classes() == [(torch.float16, False, torch.device("cpu"))]
    source.base = torch.zeros(256, 128)
    assert call.tensor_classes() != before


def test_a_descriptor_that_triton_must_launch_has_no_plan(c_part: Any) -> None:
    """Triton's launcher would take one of another layout for the kernel's."""
    made = Planned(c_part, {"source": describe(), "target": describe(), "n": 3})
    made.kernel.metadata = made.kernel.metadata._replace(num_ctas=16)
    given = {"source": describe(), "target": describe(), "n": 3}
    launched = TritonLaunch(copied, made.kernel, given, made.chosen, Config({"SIZE": 64}))
    assert plan_of(FACTS, launched, kinds()) is None


extents = st.integers(-3, 600) | st.just(1 << 40) | st.none()


@given(
    shape=st.lists(extents, max_size=6),
    strides=st.lists(extents, max_size=6),
    block=st.lists(st.sampled_from([1, 2, 64, 0, 3, 1 << 33]), max_size=6),
    tensor=st.booleans(),
)
def test_any_values_are_launched_or_left_to_triton(
    c_part: Any, driver: FakeDriver, shape: Any, strides: Any, block: Any, tensor: bool
) -> None:
    """A descriptor that was changed at will never breaks the launcher."""
    source, target = describe(), describe()
    made = Planned.__new__(Planned)
    made.slow = Slow()
    made.launcher = launcher(c_part, layout_of(parameters(copied)), made.slow)
    changed(source, shape=shape, strides=tuple(strides), block_shape=block)
    if not tensor:
        changed(source, base=object())
    driver.expect([8])
    assert made(source=source, target=target, n=3) == "slow"
    usual = tensor and 0 < len(shape) == len(strides) == len(block) <= 5 and strides[-1] == 1
    usual = usual and None not in shape and None not in strides
    usual = usual and all(one in (1, 2, 64) for one in block)
    assert (made.slow.calls[-1][3] is not None) == usual
