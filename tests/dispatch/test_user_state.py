"""Searches beside the user's modes and settings of PyTorch, on the host."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import asmtune
from asmtune import Problem, asm_autotune
from asmtune.base.errors import MeasureError
from asmtune.runtime.misses import background
from asmtune.runtime.options import deterministic
from asmtune.triton_api.user_state import inside, searching
from tests.dispatch.host_gpu import EFFORT, KERNELS, HostGpu, copy, host_gpu
from tests.tuning_support import DEVICE

SIZE = 300
CONFIGS = [triton.Config({"BLOCK": block}) for block in (32, 64)]


def grid(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Programs for a block."""
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def moved(values: Mapping[str, Any]) -> None:
    """Copy as a kernel does: PyTorch does not hear of it."""
    with torch._C.DisableTorchFunction():
        source, target = values["x_ptr"].data_ptr(), values["out_ptr"].data_ptr()
    ctypes.memmove(target, source, values["n"] * 4)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostGpu:
    """A machine whose GPU copies without PyTorch."""
    monkeypatch.setitem(KERNELS, copy, moved)
    return host_gpu(tmp_path, monkeypatch)


def tuned(**options: Any) -> Any:
    """Decorate the kernel."""
    return asm_autotune(**{"configs": CONFIGS, "key": ["n"], "effort": EFFORT} | options)(copy)


def vectors() -> tuple[torch.Tensor, torch.Tensor]:
    """What is copied, and where to."""
    return torch.arange(float(SIZE), dtype=torch.float32), torch.zeros(SIZE, dtype=torch.float32)


class Operations(TorchDispatchMode):
    """Notes the operations that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note one."""
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Notes the functions that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note one."""
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def first(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Tune at the first launch."""
    kernel = tuned(skip_tuning_below_us=None)
    return lambda: kernel[grid](x, out, SIZE)


def hit(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Launch what is tuned."""
    launch = first(x, out)
    launch()
    return launch


def stored(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Launch what is stored, by a kernel that has not met it."""
    first(x, out)()
    return first(x, out)


def predicted(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Predict at the first launch."""
    kernel = tuned(on_miss="predict")
    return lambda: kernel[grid](x, out, SIZE)


def later(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Copy the arguments for the background."""
    kernel = tuned(on_miss="background", skip_tuning_below_us=None)
    return lambda: kernel[grid](x, out, SIZE)


def patched(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Launch one of Triton's autotuners under a patch."""
    kernel = triton.autotune(CONFIGS, ["n"])(copy)

    def launch() -> None:
        with asmtune.patch(effort=EFFORT, skip_tuning_below_us=None):
            kernel[grid](x, out, SIZE)

    return launch


def by_function(x: torch.Tensor, out: torch.Tensor) -> Any:
    """Tune by the function."""
    problem = Problem(copy, {"x_ptr": x, "out_ptr": out, "n": SIZE}, grid, {"n": SIZE})
    return lambda: asmtune.tune(problem, CONFIGS, effort=EFFORT)


@pytest.mark.parametrize("path", [first, hit, stored, predicted, later, patched, by_function])
def test_nothing_of_the_tuner_reaches_a_mode(
    path: Callable[..., Any], gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operation and no function of PyTorch that the tuner calls reaches the user's modes."""
    monkeypatch.setattr("asmtune.tuning.tuner.device_name", lambda: DEVICE)
    queue = background.BackgroundQueue()
    monkeypatch.setattr(background, "queue_of", lambda _: queue)
    x, out = vectors()
    launch = path(x, out)
    with Operations() as operations, Functions() as functions:
        launch()
    # A launch reads its tensors' class, as Triton's own does; the search calls nothing.
    read = {"get_device", "data_ptr", "__get__"}
    assert operations.seen == []
    assert {function.__name__ for function in functions.seen} <= read
    assert len(functions.seen) <= 6
    if path is later:
        queue.stop()
    elif path is not by_function:
        assert out.equal(x)
        assert gpu.tuned == (0 if path is predicted else 1)


@contextlib.contextmanager
def default_dtype() -> Iterator[None]:
    """Compute in doubles."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def determinism() -> Iterator[None]:
    """Have PyTorch be deterministic, and asmtune tune all the same."""
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        with deterministic(False):
            yield
    finally:
        torch._C._set_deterministic_algorithms(False)


def state() -> tuple[Any, ...]:
    """All of PyTorch's state that a search leaves, as this thread has it."""
    autograd = torch._C._autograd
    return (
        torch._C._len_torch_dispatch_stack(),
        [type(mode) for mode in torch.overrides._get_current_function_mode_stack()],
        torch.get_default_device(),
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)],
        autograd._top_saved_tensors_default_hooks(True),
        torch._C._functorch.get_dynamic_layer_stack_depth(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        torch.get_default_dtype(),
    )


with torch.no_grad():
    USUAL = state()
"""The state that a search runs in: PyTorch's own, without gradients."""


STATES: dict[str, Callable[[], Any]] = {
    "operations": Operations,
    "functions": Functions,
    "device": lambda: torch.device("meta"),
    "inference": torch.inference_mode,
    "gradients": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "saved": lambda: torch.autograd.graph.save_on_cpu(),
    "determinism": determinism,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "dtype": default_dtype,
}


@pytest.fixture(params=[*STATES, "all"])
def users(request: pytest.FixtureRequest) -> Iterator[tuple[Any, ...]]:
    """A state of the user's, which the test runs in."""
    kinds = STATES if request.param == "all" else [request.param]
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(STATES[kind]())
        yield state()


@pytest.fixture
def searched(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The states in which a search takes samples."""
    seen = []
    rounds = HostGpu.round

    def noted(self: HostGpu, subjects: Any) -> list[float]:
        seen.append(state())
        return rounds(self, subjects)

    monkeypatch.setattr(HostGpu, "round", noted)
    return seen


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_a_search_runs_outside_the_users_state_and_hooks_inside(
    users: tuple[Any, ...], searched: list[tuple[Any, ...]], gpu: HostGpu
) -> None:
    """A search sees PyTorch's own state, and functions of the user's the user's."""
    seen: dict[str, list[tuple[Any, ...]]] = {}

    def noting(name: str, result: Any = None) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            seen.setdefault(name, []).append(state())
            return result(*args) if callable(result) else result

        return note

    def rounded(n: int) -> int:
        return int(noting("key", n)())

    def other(x_ptr: Any, out_ptr: Any, n: int) -> None:
        noting("alternative", moved)({"x_ptr": x_ptr, "out_ptr": out_ptr, "n": n})

    hook = noting("config's hook")
    kernel = tuned(
        configs=[triton.Config({"BLOCK": block}, pre_hook=hook) for block in (32, 64)],
        key={"n": rounded},
        prune_configs_by={"early_config_prune": noting("prune", lambda configs, _: configs)},
        pre_hook=noting("pre_hook"),
        post_hook=noting("post_hook"),
        skip_tuning_below_us=None,
        reference=noting("reference", lambda values: values["x_ptr"].clone()),
        alternatives={"other": other},
        on_miss="tune",
    )
    x = torch.arange(float(SIZE), dtype=torch.float32, device="cpu")
    out = torch.zeros(SIZE, dtype=torch.float32, device="cpu")
    kernel[noting("grid", grid)](x, out, SIZE)
    assert gpu.tuned == 1
    assert searched
    assert all(one == USUAL for one in searched)
    assert len(seen) == 8
    for name, states in seen.items():
        for one in states:
            # Gradients are off around alternatives, as around launches.
            left_out = 1 if name == "alternative" else 0
            assert [*one[:4], *one[4 + left_out :]] == [*users[:4], *users[4 + left_out :]], name
    assert state() == users
    assert out.equal(x)


@pytest.mark.parametrize("users", ["all"], indirect=True)
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize(
    ("error", "told"), [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, MeasureError)]
)
def test_the_state_returns_whatever_ends_a_search(
    error: type[BaseException],
    told: type[BaseException],
    users: tuple[Any, ...],
    gpu: HostGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C in the middle of a search, and an error of it, leave the user's state as it was."""

    def broken(*_: Any) -> list[float]:
        raise error

    monkeypatch.setattr(HostGpu, "round", broken)
    x = torch.zeros(SIZE, dtype=torch.float32, device="cpu")
    with pytest.raises(told):
        tuned(skip_tuning_below_us=None)[grid](x, torch.zeros_like(x, device="cpu"), SIZE)
    assert state() == users


def test_settings_of_the_process_return_to_a_hook_and_with_the_last_search() -> None:
    """While a hook of one thread runs, no search of another changes what it sees."""
    seen, entered, done = [], threading.Event(), threading.Event()

    def other() -> None:
        with searching():
            entered.set()
            done.wait()

    with default_dtype():
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
        seen.append(torch.get_default_dtype())
        with searching(), inside():
            seen.append(torch.get_default_dtype())
            with searching():
                seen.append(torch.get_default_dtype())
        seen.append(torch.get_default_dtype())
        done.set()
        thread.join()
        seen.append(torch.get_default_dtype())
    single, double = torch.float32, torch.float64
    assert seen == [single, double, single, single, double]


def test_what_another_thread_sets_during_a_search_stays() -> None:
    """A default dtype that is set while a search has put it aside is the one afterwards."""
    with default_dtype():
        with searching():
            torch.set_default_dtype(torch.bfloat16)
        assert torch.get_default_dtype() == torch.bfloat16


def test_layers_of_functorch_are_left() -> None:
    """Inside a transform a search's tensors are no tensors of the transform."""
    depths = []

    def function(x: torch.Tensor) -> torch.Tensor:
        layers = torch._C._functorch.get_dynamic_layer_stack_depth
        with searching():
            depths.append(layers())
            assert torch.zeros(2).add(1).tolist() == [1, 1]
            with inside():
                depths.append(layers())
        return x.sin()

    gradient = torch.func.grad(torch.func.grad(function))(torch.tensor(2.0))
    torch.testing.assert_close(gradient, -torch.tensor(2.0).sin())
    assert depths == [0, 2]
