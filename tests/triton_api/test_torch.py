"""Contracts of PyTorch's internals: tensors, modes, and launches that its compiler traces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode as Own

from asmtune.triton_api import compiled_graphs, tensors, user_state


class Counting(tensors.TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count one."""
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_fields_of_a_tensor_are_read_and_made() -> None:
    """Descriptors read what the public names say; memory comes with its strides and dtype."""
    read, tensor = tensors.tensor_functions(), torch.zeros(2, 3, requires_grad=True)
    assert read.requires_grad.__get__(tensor) is True
    assert (read.is_conj(tensor), read.is_neg(tensor)) == (False, False)
    assert isinstance(read.address.__get__(tensor), int)
    made = read.empty((2, 3), (5, 1), torch.float16)
    assert (made.shape, made.stride(), made.dtype) == ((2, 3), (5, 1), torch.float16)


def test_modes_are_seen() -> None:
    """Each function returns something true in its mode, and nothing outside."""
    entered = [Counting(), torch.device("cpu"), torch.autocast("cpu")]
    assert not any(mode() for mode in tensors.MODES)
    for context in entered:
        with context:
            assert any(mode() for mode in tensors.MODES)
            assert user_state.has_function_modes() == isinstance(context, torch.device)
    assert torch.func.vmap(lambda x: x * any(mode() for mode in tensors.MODES))(torch.ones(1)) == 1


def test_the_level_of_forward_differentiation() -> None:
    """The number is that outside, and another one inside."""
    scope, name, outside = tensors.forward_level()
    assert scope[name] == outside
    with torch.autograd.forward_ad.dual_level():
        assert scope[name] != outside


def test_an_autograd_function_is_applied() -> None:
    """PyTorch's own `apply` of a class differentiates by its `backward`."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            return gradient * 2

    x = torch.ones(1, requires_grad=True)
    tensors.apply_of(Twice)(x).backward()
    assert x.grad == 2


def test_views_writes_and_memory() -> None:
    """A view shares its memory's number; each write counts; inference counts none."""
    tensor = torch.zeros(4)
    view = tensor[1:]
    assert (tensors.is_view(tensor), tensors.is_view(view)) == (False, True)
    assert tensors.storage_of(tensor) == tensors.storage_of(view)
    assert tensors.storage_of(tensor) != tensors.storage_of(torch.zeros(4))
    before = tensors.writes(tensor)
    view.add_(1)
    assert before is not None
    assert tensors.writes(tensor) == before + 1
    with torch.inference_mode():
        assert tensors.writes(torch.zeros(1)) is None
    aten = torch.ops.aten
    assert tensors.is_mutating(aten.add_.Tensor)
    assert not tensors.is_mutating(aten.add.Tensor)


@pytest.mark.parametrize("number", [1, 2])
def test_differentiating_again_raises(number: int) -> None:
    """Values stay; a backward pass through one raises the message."""
    given = tuple(torch.full((2,), float(n)) for n in range(number))
    refused = tensors.raising_when_differentiated("not again", given)
    assert [r.tolist() for r in refused] == [g.tolist() for g in given]
    with pytest.raises(RuntimeError, match="not again"):
        refused[0].sum().backward()


def test_the_users_modes_are_left_and_entered() -> None:
    """Outside no mode hears, and gradients are off; inside all is as it was, in threads as well."""
    heard, seen = Counting(), list[tuple[bool, bool, bool]]()

    def look() -> tuple[int, bool]:
        before = heard.count
        torch.zeros(1).add(1)
        return heard.count - before, torch.is_grad_enabled()

    def note() -> None:
        before = torch.is_autocast_enabled("cpu")
        with user_state.inside():
            within = torch.is_autocast_enabled("cpu")
        seen.append((before, within, torch.is_autocast_enabled("cpu")))

    def started(work: Callable[[], None]) -> None:
        begin = user_state.carried()
        thread = threading.Thread(target=lambda: (begin(), work()))
        thread.start()
        thread.join()

    with heard, torch.autocast("cpu"), user_state.outside():
        assert look() == (0, False)
        assert user_state.within(look)() == (2, True)
        with user_state.searching():
            assert not user_state.are_deterministic_algorithms_enabled()
        started(lambda: started(note))  # a thread of a thread, too, has the user's modes
        started(note)
    assert seen == [(False, True, False)] * 2
    assert look()[1]


def test_no_mode_sees_operations() -> None:
    """Within the context a mode hears of nothing."""
    with Counting() as heard, compiled_graphs.no_dispatch():
        torch.empty(2)
    assert heard.count == 0
    assert tensors.TorchDispatchMode is Own


def test_sizes_that_are_traced() -> None:
    """A plain number is its own hint, and fixed."""
    hint, is_fixed = compiled_graphs.size_functions()
    assert (hint(7, 9), is_fixed(7)) == (7, True)


@pytest.mark.slow
def test_a_function_is_called_while_dynamo_traces() -> None:
    """Dynamo calls the function once, and takes its result for a constant."""
    called: list[int] = []

    def number() -> int:
        called.append(1)
        return 5

    compiled_graphs.call_when_traced(number)
    compiled_graphs.correct_dynamo()
    program = torch.compile(lambda x: x + number(), backend="eager", fullgraph=True)
    assert [program(torch.zeros(1)).item() for _ in range(2)] == [5.0, 5.0]
    assert len(called) == 1
