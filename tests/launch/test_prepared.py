"""Prepared calls: a host function's allocations and launches, done again by the C part."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from triton.compiler.compiler import CompiledKernel
from triton.runtime import _allocation
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune import asm_autotune, replay_calls
from asmtune.core.config import Config
from asmtune.runtime import call_trace
from asmtune.runtime.call_trace import keep_alive
from asmtune.runtime.launch.planning import MOST_PARAMETERS, plan_of_alternative
from tests.launch.fakes import FACTS, FakeDriver
from tests.launch.stand_in import planned_launches

X = torch.arange(32.0).reshape(4, 8)
WON = Config({"BLOCK": 64}).with_alternative("vendor")


@asm_autotune(configs=[Config({"BLOCK": 64})], key=["n"])
@triton.jit
def double(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    """Double; never compiled here."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * scale)


def grid(values: dict[str, Any]) -> tuple[int]:
    """One program an element."""
    return (values["n"],)


def doubled(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    """Check, allocate, view and launch."""
    if x.ndim == 0:
        raise ValueError("x has no axes")
    y = torch.empty_like(x)
    double[grid](x.view(x.shape), y.view(y.shape), x.numel(), scale)
    return y


class Watched:
    """The driver's launches, and the calls that a function itself has taken."""

    def __init__(self, driver: FakeDriver, part: Any) -> None:
        self.driver, self.part, self.calls = driver, part, 0

    def over(self, function: Callable[..., Any], **options: Any) -> Any:
        """Prepare a function, and count the calls that come to it."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return function(*args, **kwargs)

        counted.__wrapped__ = function  # type: ignore[attr-defined]
        made = replay_calls(**options)(function) if options else replay_calls(function)
        made.prepared.function = counted
        return made

    def replayed(self, function: Callable[..., Any], **options: Any) -> Any:
        """Prepare a function whose calls with X are replayed."""
        made = self.over(function, **options)
        assert self.own_calls(lambda: made(X)) == 0
        return made

    def own_calls(self, call: Callable[[], Any], times: int = 4) -> int:
        """Count the calls that come to the function itself, of some after the first two."""
        for _ in range(2):
            call()
        before = self.calls
        for _ in range(times):
            call()
        return self.calls - before

    def launches(self, call: Callable[[], Any]) -> int:
        """Count the driver's launches in a call."""
        before = self.driver.noted.launches
        call()
        return self.driver.noted.launches - before

    def pointer(self, slot: int) -> int:
        """The address that the last launch had in a slot."""
        (address,) = struct.unpack("<Q", self.driver.parameters()[slot])
        return int(address)


@pytest.fixture
def watched(driver: FakeDriver, c_part: Any) -> Iterator[Watched]:
    """A driver that takes notes, under kernels whose first launch makes a plan."""
    driver.expect([8] * 6)
    driver.capture(0)
    double._launcher.forget() if "_launcher" in vars(double) else None
    vars(double).pop("_launcher", None)
    with planned_launches(c_part):
        yield Watched(driver, c_part)
    vars(double).pop("_launcher", None)


def test_a_repeated_call_is_one_launch_and_no_python(watched: Watched) -> None:
    """The third call of a signature does not come to the function, and launches the same."""
    call = watched.replayed(doubled)
    assert len(call.prepared) == 1
    other = X + 1
    assert watched.launches(lambda: call(other)) == 1
    result = call(other)
    assert watched.pointer(0) == other.data_ptr()
    assert watched.pointer(1) == result.data_ptr()
    assert (result.shape, result.stride(), result.dtype) == (X.shape, X.stride(), X.dtype)
    assert watched.driver.parameters()[2:4] == [struct.pack("<q", 32), struct.pack("<d", 2.0)]
    assert watched.driver.noted.sizes[0] == 32


def test_a_launch_of_no_programs_is_left_out_of_a_prepared_call(watched: Watched) -> None:
    """A call of no rows is done again without its launch; others launch as before."""
    call, none = watched.over(doubled), X[:0]
    assert watched.own_calls(lambda: call(X)) == 0
    assert watched.own_calls(lambda: call(none)) == 0
    assert watched.launches(lambda: call(none)) == 0
    assert call(none).shape == none.shape
    assert watched.launches(lambda: call(X)) == 1


def test_arguments_by_name_and_defaults(watched: Watched) -> None:
    """The same call in other words has the same signature; a wrong one raises Python's error."""
    call = watched.over(doubled)
    assert watched.own_calls(lambda: call(X, 2.0)) == 0
    assert watched.own_calls(lambda: call(scale=2.0, x=X), 1) == 0
    with pytest.raises(TypeError, match="missing"):
        call()
    with pytest.raises(TypeError, match="unexpected"):
        call(X, other=1)
    with pytest.raises(TypeError, match="multiple"):
        call(X, x=X)


CHANGES: dict[str, Callable[[], Any]] = {
    "an extent": lambda: (X[:2],),
    "a stride": lambda: (torch.arange(64.0).reshape(4, 16)[:, :8],),
    "transposed": lambda: (X.t(),),
    "another dtype": lambda: (X.half(),),
    "an address": lambda: (torch.arange(33.0)[1:].reshape(4, 8),),
    "another float": lambda: (X, 3.0),
    "an int for a float": lambda: (X, 2),
    "a bool": lambda: (X, True),
    "a gradient": lambda: (X.clone().requires_grad_(),),
    "a tensor for a number": lambda: (X, torch.tensor(2.0)),
    "a subclass": lambda: (X.as_subclass(Sub),),
    "a sparse tensor": lambda: (X.to_sparse(),),
}


class Sub(torch.Tensor):
    """May do anything."""


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_may_change_a_call_is_another_signature(watched: Watched, name: str) -> None:
    """A call that differs in what a function may decide by comes to the function."""
    call = watched.over(doubled)
    watched.own_calls(lambda: call(X))
    before = watched.calls
    try:
        call(*CHANGES[name]())
    except (RuntimeError, NotImplementedError):
        assert name == "a sparse tensor"
    assert watched.calls == before + 1


class Mode(TorchDispatchMode):
    """Sees every operation."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def with_dual_level(call: Callable[..., Any]) -> None:
    """Call under forward-mode differentiation."""
    with forward_ad.dual_level():
        call(X)


STATES: dict[str, Callable[[Any], Any]] = {
    "a dispatch mode": lambda call: _inside(Mode(), call),
    "a default device": lambda call: _inside(torch.device("cpu"), call),
    "autocast": lambda call: _inside(torch.autocast("cpu", torch.bfloat16), call),
    "a dual level": with_dual_level,
    "no gradients": lambda call: _inside(torch.no_grad(), call),
    "vmap": lambda call: torch.vmap(lambda x: call(x) * 0 + x)(X),
    "torch.func": lambda call: torch.func.functionalize(lambda x: _quiet(call, x))(X),
    "make_fx": lambda call: make_fx(lambda x: _quiet(call, x))(X),
}


def _inside(context: Any, call: Callable[..., Any]) -> None:
    with context:
        call(X)


def _quiet(call: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """Call with a tensor that has no memory."""
    try:
        call(x)
    except (RuntimeError, TypeError):
        return x
    return x


@pytest.mark.parametrize("name", STATES)
def test_states_of_pytorch_take_the_function(watched: Watched, name: str) -> None:
    """Modes, transforms, autocast and tracing come to the function itself, and end."""
    call = watched.over(doubled)
    watched.own_calls(lambda: call(X))
    before = watched.calls
    try:
        STATES[name](call)
    except (RuntimeError, TypeError):
        assert name == "vmap"  # a kernel cannot be launched on what has no memory
    assert watched.calls > before
    assert watched.own_calls(lambda: call(X)) == 0


def test_torch_compile_sees_the_function(watched: Watched) -> None:
    """Dynamo traces the function as if it were not decorated, with its gradient."""

    def squared(x: torch.Tensor) -> Any:
        return x * x, (x,)

    call = watched.over(squared, backward=lambda grad, x: (2 * grad * x,))
    call.prepared.function = squared
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.equal(gradient, 2 * X)
    assert torch.equal(compiled(X), X * X)


def test_a_gradient_that_nothing_gives_is_refused() -> None:
    """A tensor outside of `gradients` that requires one is refused where autograd would drop it."""
    scaled = X.clone().requires_grad_()
    call = replay_calls(_scaled, backward=lambda grad, _, by: (grad * by,), gradients=["x"])
    for _ in range(3):
        with pytest.raises(ValueError, match="_scaled: by requires a gradient, and gets none"):
            call(X, scaled)
    with torch.no_grad():
        assert torch.equal(call(X, scaled), X * X)
    (gradient,) = torch.autograd.grad(call(scaled, X).sum(), scaled)
    assert torch.equal(gradient, X)


def _scaled(x: torch.Tensor, by: torch.Tensor) -> Any:
    return x * by, (x, by)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a fill": (lambda x: (torch.zeros(4), doubled(x))[1], "aten.zeros"),
    "a sum": (lambda x: doubled(x).sum(), "aten.sum"),
    "a copy": (lambda x: doubled(x.t().contiguous()), "aten.clone"),
    "a sparse tensor": (lambda x: (x.to_sparse(), doubled(x))[1], "aten._to_sparse"),
    "a graph of its own": (lambda x: doubled(x).requires_grad_(), "part of a graph"),
    "a conjugate": (lambda x: _complex(x).conj(), "a conjugate"),
    "other memory": (lambda x: (doubled(x), torch.empty(3, device="meta")), "memory on meta"),
    "nothing written": (lambda x: (doubled(x), torch.empty(3)), "no launch is given"),
    "many results": (lambda x: tuple(doubled(x) for _ in range(33)), "33 new tensors"),
    "an address": (lambda x: _launched(x, torch.empty_like(x), x.data_ptr()), "as a number"),
    "a view by its storage": (
        lambda x: _launched(x.as_strided((8,), (1,), 0), torch.empty(8)),
        "aten.as_strided",
    ),
    "a value": (lambda x: (x.max().item(), doubled(x))[1], "aten.max"),
    "a change in place": (lambda x: (x.mul_(1), doubled(x))[1], "aten.mul_"),
    "a random number": (lambda x: (torch.rand(1), doubled(x))[1], "aten.rand"),
    "a view of an argument": (lambda x: (doubled(x), x[1:])[1], "a view of an argument"),
    "a part of an allocation": (lambda x: torch.empty(2, *x.shape)[0], "a part of an allocation"),
    "an unknown tensor": (lambda x: _launched(X, doubled(x)), "neither an argument"),
    "a view of an unknown tensor": (lambda x: _launched(X[1:], doubled(x)), "aten.slice"),
    "an unknown result": (lambda x: (doubled(x), X)[1], "neither an argument"),
    "an object": (lambda x: (doubled(x), object()), "type object"),
    "Triton's own launch": (lambda x: _plain_launch(x), "a launch of alone by Triton"),
    "a compiled kernel's": (lambda x: _compiled_launch(x), "a launch of built by Triton"),
}


@triton.jit
def alone(x_ptr, BLOCK: tl.constexpr):
    """Store zeros; Triton itself launches it."""
    tl.store(x_ptr + tl.arange(0, BLOCK), 0.0)


def _launched(x: torch.Tensor, y: torch.Tensor, n: int = 32) -> torch.Tensor:
    double[(1,)](x, y, n, 2.0)
    return y


def _complex(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x, dtype=torch.complex64)
    double[grid](x, torch.view_as_real(y), x.numel(), 2.0)
    return y


def _plain_launch(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(RuntimeError):  # there is no GPU
        alone[(1,)](x, BLOCK=16)
    return doubled(x)


def _compiled_launch(x: torch.Tensor) -> torch.Tensor:
    kernel = object.__new__(CompiledKernel)
    kernel.name = "built"
    with contextlib.suppress(AttributeError, RuntimeError):  # it is not compiled
        kernel[(1,)](x)
    return doubled(x)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_never_replayed(watched: Watched, name: str) -> None:
    """A function that does more than allocate, view and launch is called each time."""
    function, reason = REFUSED[name]
    call = watched.over(lambda x: function(x))
    x = X.clone()
    assert watched.own_calls(lambda: call(x)) == 4
    assert len(call.prepared) == 0
    (told,) = call.prepared.refused
    assert reason in told


def test_as_many_results_as_a_call_holds(watched: Watched) -> None:
    """A function of 32 new tensors is prepared; `REFUSED` has one of 33."""
    call = watched.replayed(lambda x: tuple(doubled(x) for _ in range(32)))
    assert watched.launches(lambda: call(X)) == 32


def test_addresses_of_views(watched: Watched) -> None:
    """A launch on a part of an argument, or of an allocation, gets the part's address."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        both = torch.empty((2, *x.shape))
        double[grid](x[1], both[1], x.numel(), 2.0)
        return both

    call = watched.replayed(halves)
    other = X.clone()
    result = call(other)
    assert watched.pointer(0) == other[1].data_ptr()
    assert watched.pointer(1) == result[1].data_ptr()


def test_one_tensor_as_two_arguments(watched: Watched) -> None:
    """What f(x, x) did, or f of two tensors at one address, is not done again for f(x, y)."""

    def product(x: torch.Tensor, y: torch.Tensor) -> Any:
        out = torch.empty_like(x)
        double[grid](x, y, x.numel(), 2.0)
        double[grid](y, out, x.numel(), 2.0)
        return out, y

    call = watched.over(product)
    x, y = X.clone(), X.clone()
    for first, second in ((x, x), (x, x.view(x.shape)), (x, y)):
        assert watched.calls == 0 or watched.own_calls(lambda: call(x, x), 1) == 0
        before = watched.calls
        result = call(first, second)
        assert watched.calls == before + 1
        assert result[1] is second
        assert watched.own_calls(lambda f=first, s=second: call(f, s)) == 0  # type: ignore[misc]
        assert watched.pointer(0) == second.data_ptr()
        assert call(first, second)[1] is second


def test_what_a_function_may_see_of_a_tensor(watched: Watched) -> None:
    """Gradients under `no_grad`, negatives, and the default dtype are of the signature."""
    call = watched.over(lambda x: (_launched(x.resolve_neg(), torch.empty(4)), x.requires_grad))
    values = torch.zeros(4, 8, dtype=torch.complex64)
    with torch.no_grad():
        assert watched.own_calls(lambda: call(X)) == 0
        assert call(X.clone().requires_grad_())[1] is True
    assert watched.own_calls(lambda: call(values.imag)) == 0
    assert watched.own_calls(lambda: call(values.conj().imag), 1) == 1
    torch.set_default_dtype(torch.float64)
    try:
        assert call(X)[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_memory_that_is_not_returned(watched: Watched) -> None:
    """Allocations of the function's own are one, each at a multiple of 512 bytes."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        first, second, y = torch.empty(3), torch.empty_like(x), torch.empty_like(x)
        double[grid](x, y, x.numel(), 2.0)
        double[grid](x, first, x.numel(), 2.0)
        double[grid](first, second, x.numel(), 2.0)
        double[grid](second, first, x.numel(), 2.0)
        return y

    call = watched.replayed(twice)
    assert watched.launches(lambda: call(X)) == 4
    assert watched.pointer(0) == watched.pointer(1) + 512


def test_persistent_memory_is_not_used_in_a_captured_graph(watched: Watched) -> None:
    """Memory that calls share is declared; a capture takes the function, which allocates anew."""
    room = torch.zeros(32)

    def shared(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        double[grid](room, y, x.numel(), 2.0)
        return y

    keep_alive(room)
    try:
        call = watched.replayed(shared)
        assert watched.pointer(0) == room.data_ptr()
        watched.driver.capture(1)
        assert watched.own_calls(lambda: call(X), 1) == 1
        watched.driver.capture(0)
        assert watched.own_calls(lambda: call(X), 1) == 0
    finally:
        call_trace._persistent.pop(id(room))


def test_structures_of_results(watched: Watched) -> None:
    """Nested tuples, None, and arguments come back as the function returns them."""

    def several(x: torch.Tensor) -> Any:
        y = doubled(x)
        return x, (y, None), 7, "text"

    call = watched.replayed(several)
    x = X.clone()
    first, (second, nothing), number, text = call(x)
    assert first is x
    assert watched.pointer(1) == second.data_ptr()
    assert (nothing, number, text) == (None, 7, "text")


INVALIDATED: dict[str, Callable[[], Any]] = {
    "the kernel's configs are forgotten": lambda: double._forget(),
    "a config is put into the cache": lambda: double.cache.__setitem__(("key",), Config({})),
    "a launch hook": lambda: triton.knobs.runtime.launch_enter_hook.add(print),
}


@pytest.mark.parametrize("name", INVALIDATED)
def test_changes_of_configs_and_hooks_reach_prepared_calls(watched: Watched, name: str) -> None:
    """What makes a plan void makes a prepared call void: the function is called again."""
    call = watched.replayed(doubled)
    try:
        INVALIDATED[name]()
        before = watched.calls
        call(X)
        assert watched.calls == before + 1
    finally:
        triton.knobs.runtime.launch_enter_hook.calls.clear()
        double.cache.clear()
    watched.own_calls(lambda: call(X))
    assert watched.own_calls(lambda: call(X)) == 0


def test_each_device_and_stream_has_its_own(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is part of the signature, and the driver gets the current one."""
    from asmtune.triton_api.launching import CurrentStream

    stream = [5]
    current = CurrentStream(lambda: -1, lambda _: stream[0])
    monkeypatch.setattr("asmtune.runtime.replay_calls.current_stream", lambda: current)
    call = watched.replayed(doubled)
    assert watched.driver.noted.stream == 5
    stream[0] = 6
    before = watched.calls
    call(X)
    assert watched.calls == before + 1
    assert watched.own_calls(lambda: call(X)) == 0
    assert watched.driver.noted.stream == 6


def test_threads_call_at_once(watched: Watched) -> None:
    """Threads that meet signatures at once get results of their own extents."""
    call, wrong = watched.over(doubled), []

    def work(rows: int) -> None:
        for _ in range(50):
            x = torch.zeros(rows, 8)
            wrong.extend([rows] * (call(x).shape != x.shape))

    threads = [threading.Thread(target=work, args=(1 + n % 4,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_gradients_are_entered_where_one_is_asked_for(watched: Watched) -> None:
    """Autograd gets the function's own backward, with what the call has saved."""
    seen: list[Any] = []

    def backward(grad: torch.Tensor, *saved: Any) -> Any:
        seen.append(saved)
        return (grad * saved[2],)

    def function(x: torch.Tensor, scale: float = 2.0) -> Any:
        y = doubled(x)
        return y, (x, y, scale)

    call = watched.replayed(function, backward=backward)
    assert not call(X).requires_grad
    x = X.clone().requires_grad_()
    assert watched.own_calls(lambda: call(x)) == 0
    y = call(x)
    assert watched.pointer(1) == y.data_ptr()
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(gradient, torch.full_like(X, 2.0))
    ((saved_x, saved_y, scale),) = seen
    assert (saved_x.data_ptr(), saved_y.data_ptr()) == (x.data_ptr(), y.data_ptr())
    assert scale == 2.0
    with torch.no_grad():
        assert not call(x).requires_grad


def _with_prepared_backward(watched: Watched) -> tuple[Any, Any]:
    """Make a differentiable function whose backward is prepared as well."""

    def backward(grad: torch.Tensor, x: torch.Tensor, scale: float) -> Any:
        first, second = torch.empty_like(x), torch.empty(x.shape[1])
        double[grid](grad.reshape(-1), first, x.numel(), scale)
        double[grid](first, second, x.shape[1], 1.0)
        return first, second

    def function(x: torch.Tensor, weight: torch.Tensor, scale: float = 2.0) -> Any:
        y = torch.empty_like(x)
        double[grid](x, y, x.numel(), scale)
        double[grid](weight, y, weight.numel(), scale)
        return y, (x, scale)

    gradients = watched.over(backward)
    return watched.over(function, backward=gradients), gradients


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_prepared_backward_is_its_launches_alone(
    watched: Watched, needed: tuple[bool, bool], create_graph: bool
) -> None:
    """Repeated backward passes come to neither function, whichever gradients are needed."""
    call, gradients = _with_prepared_backward(watched)
    x, weight = (
        t.requires_grad_(n) for t, n in zip((X.clone(), torch.ones(8)), needed, strict=True)
    )
    leaves = [t for t in (x, weight) if t.requires_grad]
    grad = torch.ones_like(X)

    def both() -> Any:
        return torch.autograd.grad(call(x, weight), leaves, grad, create_graph=create_graph)

    assert watched.own_calls(both) == 0
    assert watched.launches(both) == 4
    results = both()
    assert [result.shape for result in results] == [leaf.shape for leaf in leaves]
    # Gradients of the weight alone depend on nothing that has a gradient.
    again = create_graph and needed[0]
    assert [result.requires_grad for result in results] == [again] * len(leaves)
    if again:
        with pytest.raises(RuntimeError, match="cannot be differentiated again"):
            results[0].sum().backward()
    if needed[1]:
        assert watched.pointer(1) == results[-1].data_ptr()
    assert len(gradients.prepared) == 1


def test_a_backward_is_told_what_is_needed(watched: Watched) -> None:
    """`needed` says which parameters require a gradient, whether a call is prepared or not."""
    seen: list[Any] = []

    def backward(grad: torch.Tensor, scale: float, *, needed: tuple[bool, ...]) -> Any:
        seen.append(needed)
        return tuple(grad * scale if one else None for one in needed[:2])

    call = watched.over(
        lambda x, weight, scale=3.0: ((doubled(x), weight)[0], (scale,)), backward=backward
    )
    x, weight = X.clone().requires_grad_(), X.clone().requires_grad_()
    for _ in range(4):
        torch.autograd.grad(call(x, X), x, torch.ones_like(X))
        torch.autograd.grad(call(X, weight), weight, torch.ones_like(X))
    assert seen == [(True, False, False), (False, True, False)] * 4


def test_an_alternative_that_won_is_called(
    driver: FakeDriver, c_part: Any, watched: Watched
) -> None:
    """The function of the winner's name gets the call as it is; without one the launch relays."""
    seen: list[Any] = []

    def vendor(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        seen.append((x, scale))
        return x * scale

    relayed: list[Any] = []
    facts = {"config": WON, "function": 0, "relay": lambda *args: relayed.append(args)}
    with planned_launches(c_part, **facts):
        call = watched.replayed(doubled, alternatives={"vendor": vendor})
        seen.clear()
        assert torch.equal(call(X), X * 2)
        ((x, scale),) = seen
        assert x is X
        assert scale == 2.0
        double._forget()
        before = watched.calls
        call(X)
        assert watched.calls == before + 1
        without = watched.over(doubled)
        relayed.clear()
        assert watched.own_calls(lambda: without(X)) == 4
        assert "vendor" in next(iter(without.prepared.refused))
        assert len(relayed) >= 4


def test_a_winner_beside_launches_without_alternatives_is_called(
    c_part: Any, watched: Watched
) -> None:
    """A function that copies before the launch that was won is replaced as a whole."""
    vars(tile_copied).pop("_launcher", None)
    tile_copied[(1,)](X, X, 4)  # its plan has no alternative
    with planned_launches(c_part, config=WON, function=0, relay=lambda *_: None):

        def both(x: torch.Tensor) -> torch.Tensor:
            tile_copied[(1,)](x, x, 4)
            return doubled(x)

        call = watched.replayed(both, alternatives={"vendor": lambda x: x * 2})
        assert torch.equal(call(X), X * 2)
        assert watched.launches(lambda: call(X)) == 0
    vars(tile_copied).pop("_launcher", None)


def test_what_an_alternative_does_is_not_the_functions(c_part: Any, watched: Watched) -> None:
    """A winner that computes and launches by itself is called from the third call on."""

    def launched(x: torch.Tensor, y: torch.Tensor, *_: Any) -> None:
        torch.mul(x, 2.0, out=y)
        with contextlib.suppress(RuntimeError):  # there is no GPU
            alone[(1,)](x, BLOCK=16)

    names = ("x_ptr", "y_ptr", "n", "scale")
    relay = plan_of_alternative(FACTS, double._function, launched, names, WON).relay
    with planned_launches(c_part, config=WON, function=0, relay=relay):
        call = watched.replayed(doubled, alternatives={"vendor": lambda x, scale: x * scale})
        assert torch.equal(call(X), X * 2)
        after = watched.over(lambda x: doubled(x).mul_(2.0), alternatives={"vendor": torch.neg})
        assert watched.own_calls(lambda: after(X)) == 4
        assert "aten.mul_" in next(iter(after.prepared.refused))


MISFITS: dict[str, Callable[[torch.Tensor], Any]] = {
    "another dtype": lambda x: x.double(),
    "another shape": lambda x: x[:2],
    "other strides": lambda x: x.t().contiguous().t(),
    "a tuple": lambda x: (x, x),
    "no tensor": lambda _: None,
    "an error": lambda x: x.view(3),
}


@pytest.mark.parametrize("name", MISFITS)
def test_an_alternative_of_another_result_is_left_out(
    name: str, c_part: Any, watched: Watched
) -> None:
    """A winner whose first result is not of the function's form is refused, and never returned."""
    with planned_launches(c_part, config=WON, function=0, relay=lambda *_: None):
        call = watched.over(doubled, alternatives={"vendor": lambda x, _: MISFITS[name](x)})
        results = [call(X) for _ in range(4)]
        assert watched.own_calls(lambda: call(X)) == 4
    assert {(r.dtype, r.shape, r.stride()) for r in results} == {(X.dtype, X.shape, X.stride())}
    (told,) = call.prepared.refused
    assert told.startswith("alternative 'vendor' gave ")


def test_gradients_do_not_depend_on_the_call_number(c_part: Any, watched: Watched) -> None:
    """A winner that autograd knows is not called for arguments that require a gradient."""
    with planned_launches(c_part, config=WON, function=0, relay=lambda *_: None):
        call = watched.over(doubled, alternatives={"vendor": lambda x, scale: x * scale})
        x = X.clone().requires_grad_()
        assert not any(call(x).requires_grad for _ in range(4))
        assert watched.own_calls(lambda: call(X)) == 0
        with torch.no_grad():
            assert watched.own_calls(lambda: call(x)) == 0


def test_results_may_be_changed_in_place(watched: Watched) -> None:
    """A differentiable function's views are results like any, at each call, with its gradient."""

    def function(x: torch.Tensor) -> Any:
        kept, y = (doubled(x.view(-1)).view(x.shape) for _ in range(2))
        return (kept, y), (kept,)

    call = watched.over(function, backward=lambda one, two, _: (one + 3.0 * two,))
    wanted = torch.full_like(X, 3.0)
    wanted[:2] = 15.0
    for _ in range(4):
        x = X.clone().requires_grad_()
        _, y = call(x)
        y.add_(1.0)[:2].mul_(5.0)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(gradient, wanted)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            call(x)[0].add_(1.0).sum().backward()
    assert len(call.prepared) == 1


@asm_autotune([Config({"BLOCK": 16})], ["n"])
@triton.jit
def tile_copied(source, target, n, BLOCK: tl.constexpr):
    """Copy a tile; nothing compiles it."""


def set_block(values: dict[str, Any]) -> None:
    """Set what the descriptors copy at a time."""
    values["source"].block_shape = values["target"].block_shape = [2, values["BLOCK"]]


def other_hook(values: dict[str, Any]) -> None:
    """Do as `set_block`, undeclared."""
    set_block(values)


def tile_of(x: torch.Tensor) -> torch.Tensor:
    """Describe what is given from its third row on, and what is allocated."""
    y = torch.empty_like(x)
    parts = (TensorDescriptor.from_tensor(one, [1, 16]) for one in (x[2:], y))
    tile_copied[(3,)](*parts, 5)
    return y


@pytest.mark.parametrize("hook", [None, call_trace.sets_blocks(set_block), other_hook])
def test_descriptors_in_prepared_calls(c_part: Any, watched: Watched, hook: Any) -> None:
    """Descriptors follow their tensors; a hook is left out where it sets blocks alone."""
    x, other = (torch.zeros(8, 32, dtype=torch.float16) for _ in range(2))
    with planned_launches(c_part, hook=hook):
        vars(tile_copied).pop("_launcher", None)
        call = watched.over(tile_of)
        assert watched.own_calls(lambda: call(x)) == (4 if hook is other_hook else 0)
        watched.driver.expect([128, 4, 4, 128, 4, 4, 8, 8, 8])
        for given in (other, x):
            result = call(given)
            source, target = watched.driver.map(0), watched.driver.map(3)
            assert (source.address, target.address) == (given[2:].data_ptr(), result.data_ptr())
            assert (list(source.shape)[:2], list(target.shape)[:2]) == ([32, 6], [32, 8])
            assert watched.driver.parameters()[1][:4] == struct.pack("<i", 6)
    vars(tile_copied).pop("_launcher", None)


def test_a_descriptor_that_changes_between_launches(c_part: Any, watched: Watched) -> None:
    """Each launch of a prepared call has the descriptor as it was then."""
    x, other = (torch.zeros(8, 32, dtype=torch.float16) for _ in range(2))

    def both(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        source = TensorDescriptor.from_tensor(x, [2, 16])
        target = TensorDescriptor.from_tensor(y, [2, 16])
        source.base = other
        tile_copied[(3,)](source, target, 5)
        source.base = x
        return y

    with planned_launches(c_part):
        vars(tile_copied).pop("_launcher", None)
        call = watched.over(both)
        assert watched.own_calls(lambda: call(x, other)) == 0
        watched.driver.expect([128, 4, 4, 128, 4, 4, 8, 8, 8])
        call(x, other)
        assert watched.driver.map(0).address == other.data_ptr()
    vars(tile_copied).pop("_launcher", None)


def test_signatures_of_many_words(watched: Watched) -> None:
    """One with hardly any room left is the function's own."""

    def many(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return (a, b, c, d, e)

    call = watched.over(many)
    for count in range(50, 66):
        assert call((0,) * 95, (0,) * 95, (0,) * count, 5, 0x1234567)[4] == 0x1234567


@pytest.mark.parametrize("more", [0, 1])
def test_a_signature_has_its_most_parameters(more: int) -> None:
    """A function of as many parameters as a signature holds is prepared; one more is refused."""
    names = ", ".join(f"a{place}" for place in range(MOST_PARAMETERS + more))
    scope: dict[str, Any] = {}
    exec(f"def wide({names}): return a0", scope)
    with pytest.raises(TypeError) if more else contextlib.nullcontext():
        assert replay_calls(scope["wide"])(*range(MOST_PARAMETERS)) == 0


def test_launches_by_tritons_own_launcher(c_part: Any, watched: Watched) -> None:
    """A plan without a handle is relayed, with addresses in the place of tensors."""
    relayed: list[tuple[Any, ...]] = []
    facts = {"function": 0, "relay": lambda *args: relayed.append(args), "between": ("b",)}
    with planned_launches(c_part, **facts):
        call = watched.replayed(doubled)
        result = call(X)
    assert relayed[-1] == (32, 1, 1, 0, "b", X.data_ptr(), result.data_ptr(), 32, 2.0, 1)


def test_scratch_of_a_kernel(c_part: Any, watched: Watched) -> None:
    """A kernel that asks for memory gets some of the call's own, unless a program gives it."""
    allocated: list[int] = []

    def allocator(size: int, alignment: int, stream: int | None) -> Any:
        allocated.append(size)
        return torch.empty(size, dtype=torch.int8)

    with planned_launches(c_part, scratch=(128, 1, lambda: allocator)):
        vars(double).pop("_launcher", None)
        relayed = watched.over(doubled)
        token = _allocation._allocator.set(allocator)
        assert watched.own_calls(lambda: relayed(X)) == 4
        assert {*allocated} == {32 * 128}
        _allocation._allocator.reset(token)
        call = watched.replayed(doubled)
        call(X)
        assert watched.pointer(4) not in (0, watched.pointer(0), watched.pointer(1))


def test_without_a_gpu_the_function_is_called() -> None:
    """Where there is no C part, a prepared function is the function."""
    call = replay_calls(lambda x, k=1: x * k)
    assert [call(X, k=2).sum().item() for _ in range(3)] == [2 * X.sum().item()] * 3
    assert len(call.prepared) == 0
