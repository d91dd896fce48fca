"""Values of index tensors that a kernel module makes on the meta device.

A module makes its lengths, offsets and ids as on a GPU, and meta tensors forget them. While
`MetaValues` is active, what integers a meta tensor would hold is computed beside it on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

MOST: Final = 1 << 20
"""Most elements of a tensor that is computed beside a meta tensor."""

_UNSET: Final = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "empty_permuted"})


class _CopyLists(TorchFunctionMode):
    """Makes tensors of Python's numbers on the CPU first: they would be empty from the start."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function; `torch.tensor(..., device="meta")` in two steps."""
        del types
        kwargs = kwargs or {}
        place = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor) and str(place) == "meta":
            return func(*args, **{**kwargs, "device": "cpu"}).to("meta")
        return func(*args, **kwargs)


class MetaValues(TorchDispatchMode):
    """Computes small meta tensors on the CPU as well, from a fixed seed.

    A tensor is not known if it is large, if it was never filled, or if it depends on one that is
    not known.
    """

    def __init__(self) -> None:
        super().__init__()
        # By address, with the tensors, so that no address is used again.
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._lists = _CopyLists()

    def __enter__(self) -> MetaValues:
        self._state = torch.random.get_rng_state()
        torch.random.default_generator.manual_seed(0)
        super().__enter__()
        self._lists.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._lists.__exit__(*error)
        super().__exit__(*error)
        torch.random.set_rng_state(self._state)

    def values(self, tensor: Any) -> torch.Tensor | None:
        """Return what a meta tensor would hold; None if that is not known."""
        known = self._known.get(id(tensor))
        return None if known is None else known[1]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and once more on the CPU where its inputs are known."""
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        outputs = [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]
        if not any(one.is_meta for one in outputs):
            return result
        values = self._computed(func, args, kwargs, outputs)
        for output, value in zip(outputs, values, strict=False):
            if isinstance(value, torch.Tensor) and value.shape == output.shape:
                self._known[id(output)] = (output, value)
            elif id(output) in self._known:  # written with what is not known, as are its views
                self._forget(self._known[id(output)][1])
        return result

    def _forget(self, value: torch.Tensor) -> None:
        memory = value.untyped_storage().data_ptr()
        self._known = {
            key: entry
            for key, entry in self._known.items()
            if entry[1].untyped_storage().data_ptr() != memory
        }

    def _computed(
        self, func: Any, args: Any, kwargs: dict[str, Any], outputs: list[torch.Tensor]
    ) -> list[Any]:
        unknown = [None] * len(outputs)
        if any(one.numel() > MOST for one in outputs):
            return unknown
        if func.overloadpacket.__name__ in _UNSET:
            return unknown
        inputs = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        if any(one.is_meta and self.values(one) is None for one in inputs):
            return unknown
        own_args, own_kwargs = tree_map(self._on_cpu, (args, kwargs))
        try:
            return tree_flatten(func(*own_args, **own_kwargs))[0]
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return unknown  # the module's own call has succeeded, and its launch is what matters

    def _on_cpu(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_meta:
            return self.values(value)
        is_meta = isinstance(value, torch.device) and value.type == "meta"
        return torch.device("cpu") if is_meta else value
