"""Bytes that the steps of the convolution ladder move, and one fused kernel against three.

    python -m benchmarks.ladder.traffic

Needs no GPU: the bytes are those that asmtune counts in each kernel's IR, as `asmtune roofline`
does: different bytes read and written by a launch. Writes the tables of docs/ladder_conv.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

import torch
import triton

from asmtune.base.errors import CompileError
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.kernels import conv2d
from asmtune.kernels._conv2d_host import grid, layer
from asmtune.kernels._conv2d_vendor import Window
from benchmarks.harness import between
from benchmarks.harness import table as markdown
from benchmarks.ladder import conv, gemm

DOCUMENT = Path(__file__).parents[2] / "docs" / "ladder_conv.md"
BEGIN, END = "<!-- traffic -->\n", "<!-- end of traffic -->\n"
SHAPES: Final = conv2d.SHAPES[:6]
"""Layers of ResNet; the last of `conv2d`, of 3 channels, goes by a copy of its image."""


def moved(kernel: Any, given: Mapping[str, Any], tiles: Any, config: Config) -> float:
    """Count the different bytes that a launch reads and writes, from its IR.

    Raises:
        CompileError: it cannot be lowered.
    """
    named = {name: value for name, value in given.items() if name in kernel.arg_names}
    problem = Problem(kernel, named, tiles, {}, kernel.fn.__name__)
    request = Lowering(problem, load_target("H200"), 60).request(config)
    if not isinstance(request, LowerRequest):
        raise CompileError(f"traffic: {problem.name} cannot be lowered: {request.detail}")
    sizes = {n: v.untyped_storage().nbytes() for n, v in named.items() if torch.is_tensor(v)}
    call = LaunchArguments(problem.bind(config), problem.programs(config), sizes)
    work = analyse(request.ttir, call)
    return work.unique_read_bytes + work.unique_written_bytes


class Layer:
    """The launches of one layer on tensors without memory, by a shape of `conv2d`."""

    def __init__(self, shape: Mapping[str, int]) -> None:
        given = conv2d.inputs(shape, "fp16", "meta")
        self._window = Window.of(given["stride"], given["padding"])
        self._tensors = given["x"], given["weight"], given["bias"]
        self.x, self.weight = (t.permute(0, 2, 3, 1) for t in self._tensors[:2])
        self.y = conv.result(self.x, self.weight, self._window)

    def direct(self) -> float:
        """Count v0's bytes."""
        given = conv.arguments(self.x, self.weight, self.y, self._window)
        return moved(conv.direct, given, lambda _: conv.pixels(self.y), conv.DIRECT)

    def im2col(self) -> float:
        """Count v1's bytes: those of the matrix of windows, and of the product."""
        given = conv.arguments(self.x, self.weight, self.y, self._window)
        matrix = self.x.new_empty(prod(self.y.shape[:3]), self.weight[0].numel())
        across = triton.cdiv(matrix.shape[1], conv.WINDOWS.kwargs["BLOCK"])
        first = moved(
            conv.windows, {**given, "m_ptr": matrix}, lambda _: (len(matrix), across), conv.WINDOWS
        )
        operands = gemm.arguments(matrix, self.weight.reshape(len(self.weight), -1).T.contiguous())
        return first + moved(gemm.pipelined, operands, gemm.tiles, gemm.V2)

    def implicit(self, *, fused: bool) -> float:
        """Count v2's bytes, with bias and ReLU on its tiles or without."""
        x, weight, bias = self._tensors
        made = layer(x, weight, bias if fused else None, self._window)
        return moved(conv2d.kernel, made.arguments(relu=fused), grid, conv2d.DEFAULT)

    def three(self) -> float:
        """Count the bytes of v2 without bias and ReLU, of `add_bias`, and of `relu`."""
        n = self.y.numel()
        given = {"y_ptr": self.y, "z_ptr": self.y, "bias_ptr": self._tensors[2], "n": n}
        given |= {"filters": self.y.shape[3]}
        blocks = (triton.cdiv(n, conv.ROWS.kwargs["BLOCK"]),)
        kernels = (conv.add_bias, conv.relu)
        after = (moved(kernel, given, lambda _: blocks, conv.ROWS) for kernel in kernels)
        return self.implicit(fused=False) + sum(after)


@cache
def table() -> str:
    """Write a line a layer: MB of each step, of three kernels and of one, and what one saves."""
    names = ("layer", "v0 direct", "v1 im2col", "v2 implicit", "three kernels", "one", "fewer")
    cells: list[tuple[str, ...]] = []
    for shape in SHAPES:
        made = Layer(shape)
        three, one = made.three(), made.implicit(fused=True)
        steps = (made.direct(), made.im2col(), made.implicit(fused=False), three, one)
        size = f"{shape['height']}x{shape['width']}x{shape['channels']} to {shape['filters']}"
        name = f"{size}, {shape['taps']}x{shape['taps']} by {shape['stride']}"
        cells.append((name, *(f"{step / 1e6:.1f}" for step in steps), f"{1 - one / three:.0%}"))
    return markdown(names, cells)


def rewritten(text: str) -> str:
    """Return the document with the table of today's code."""
    return between(text, BEGIN, END, f"\n{table()}\n\n", DOCUMENT.name)


def main() -> None:
    """Write the table."""
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
    print(table())


if __name__ == "__main__":
    main()
