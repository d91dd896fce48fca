"""Values of index tensors: those that steer a kernel, such as sequence lengths or expert ids.

They come from a launch's own tensors, copied once; from a tensor that is given with a problem; or
from what a kernel module computed before its tensors became meta tensors.
Predictions alone use them. No key holds them: a record is for its key, whatever the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import ProblemError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COPIED_BYTES: Final = 64 << 20
"""Most bytes of a tensor that is copied, some 20 ms once a tuning; what is larger is not known."""

_BEHIND: Final = 4096
"""Elements behind a view that are copied with it: kernels are handed `offsets[:-1]` as well."""


@dataclass(frozen=True, eq=False)
class IndexValues:
    """Elements of an integer or boolean tensor in the order of memory, from its first one on.

    Attributes:
        values: signed, of the tensor's width; booleans are 0 and 1.
        source: where they come from, in words for a report.
    """

    values: NDArray[Any]
    source: str

    @property
    def bits(self) -> int:
        """Return the bits of an element."""
        return self.values.dtype.itemsize * 8

    def item(self, offset: int) -> int | None:
        """Return one element; None if it lies outside the tensor."""
        return int(self.values.item(offset)) if 0 <= offset < len(self.values) else None

    def read(self, offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the elements at some offsets; None if one lies outside the tensor."""
        import numpy as np

        if offsets.size and (offsets.min() < 0 or offsets.max() >= len(self.values)):
            return None
        return self.values[offsets].astype(np.int64)


def values_of(tensor: Any, source: str) -> IndexValues | str:
    """Copy an integer or boolean tensor to the host, or say in words why it cannot be.

    Nothing is copied while a CUDA graph is captured, which a copy would end.
    """
    import torch

    if not is_plain(tensor):
        return "it is no plain tensor"
    if tensor.is_meta:
        return "no values are given"
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    flat = _in_memory(tensor.detach())
    size = flat.numel() * flat.element_size()
    if size > COPIED_BYTES:
        return f"it holds {size:,} bytes, and at most {COPIED_BYTES:,} are copied"
    return IndexValues(signed(flat.cpu().numpy().copy()), source)


def checked_values(
    kernel: str, values: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, IndexValues]:
    """Copy the tensors that a problem's `index_values` hold.

    Raises:
        ProblemError: a name is no index tensor of the kernel's, or its value no tensor of integers
            with elements.
    """
    made: dict[str, IndexValues] = {}
    for name, value in values.items():
        where = f"kernel {kernel}: index_values[{name!r}]"
        if not is_index(arguments.get(name)):
            raise ProblemError(f"{where}: the kernel is given no integer tensor of this name")
        table = value
        if not isinstance(value, IndexValues):
            table = values_of(value, "values given with the problem") if is_index(value) else ""
        if isinstance(table, str):
            raise ProblemError(f"{where}: expected an integer tensor on the CPU")
        made[name] = table
    return made


def is_plain(tensor: Any) -> bool:
    """Say if a value is one of PyTorch's own tensors, whose elements lie in memory."""
    import torch

    kinds = (torch.Tensor, torch.nn.Parameter)
    return type(tensor) in kinds and tensor.layout == torch.strided


def signed(array: NDArray[Any]) -> NDArray[Any]:
    """Return integers as the kernel's IR has them: signed, booleans as bytes."""
    import numpy as np

    return array.view(np.dtype(f"i{array.dtype.itemsize}"))


def _in_memory(tensor: Any) -> Any:
    """Return the elements from a tensor's first on as they lie in memory, without a copy."""
    if not tensor.numel():
        return tensor.reshape(-1)
    reach = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    whole = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    length = min(whole, reach + _BEHIND)
    return tensor.as_strided((length,), (1,), tensor.storage_offset())


def is_index(tensor: Any) -> bool:
    """Say if a value is a tensor of integers or booleans, as index tensors are."""
    kind = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    return hasattr(tensor, "numel") and kind.lstrip("u").startswith(("int", "bool"))
