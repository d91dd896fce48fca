"""docs/ladder.md, generated: the steps in sentences and in one table, from the results."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import table
from benchmarks.ladder.steps import EPILOGUE, PRODUCT, STEPS

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "ladder.md"

Row = Mapping[str, Any]

_OPENING: Final = """\
<!-- Written by `python -m benchmarks.ladder --table`; change benchmarks/ladder/document.py. -->

# Five GEMMs

The same product, C = A B, in five steps, the functions `v0` to `v4` of
[benchmarks/ladder/gemm.py](../benchmarks/ladder/gemm.py). Read it from top to bottom; the one to
call is `asmtune.kernels.matmul`. Beside the time stands what asmtune reads off the machine code,
since it says why a step is faster."""

_CHANGES: Final = {
    "v0": (
        "naive",
        "One program computes one element: a row of A times a column of B. Every program reads "
        "both again, and neighbours in a column lie a row apart, so that they cannot be loaded "
        "together.",
    ),
    "v1": (
        "tiled",
        "One program computes a tile, and `tl.dot` multiplies tiles in the tensor cores. What is "
        "loaded is used once for each row or column of the tile. With `num_stages=1` each trip of "
        "the loop waits for its loads before it multiplies.",
    ),
    "v2": (
        "pipelined",
        "Larger tiles, more warps, and `num_stages=3`: `cp.async` fetches the tiles of later trips "
        "into shared memory while the tensor cores multiply. Programs run in groups of rows of "
        "tiles, so that those that run together share what is in L2.",
    ),
    "v3": (
        "autotuned",
        "The kernel of v2 under `@asm_autotune`: tiles, warps and stages are found for each size. "
        "asmtune compiles configs of the space, ranks them by their assembly and times few.",
    ),
    "v4": (
        "epilogue",
        "Bias and GELU (or ReLU, SiLU) are computed on the tile while it is in registers. "
        "PyTorch's GELU is a kernel of its own, which reads and writes C once more.",
    ),
}

_NARROW: Final = (
    "At 1000 a row of halves takes 2000 bytes, so that all rows begin at a multiple of 16 bytes. "
    "But of an argument Triton knows only whether 16 divides it, and 16 does not divide 1000: it "
    "loads one element at a time, which `cp.async`, of 4 bytes or more, cannot, and nothing is "
    "loaded ahead. {} A contract tells the compiler what else divides a size: `MULTIPLE` in "
    "[kernels/_common.py](../kernels/_common.py)."
)


def document(results: Mapping[str, Any]) -> str:
    """Write the whole text, from the results alone."""
    rows = {row["size"]["N"]: row for row in results["rows"]}
    parts = [_OPENING, *(_section(step, rows[4096]) for step in _CHANGES)]
    parts += ["## The table", _wrapped(_source(results)), _table(results["rows"])]
    narrow = _read(rows[1000]["assembly"]["v2"]).replace("The assembly", "The assembly of v2 there")
    parts += ["## Where the ladder ends", _wrapped(_NARROW.format(narrow))]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _section(step: str, row: Row) -> str:
    name, changed = _CHANGES[step]
    sentences = (changed, _read(row["assembly"][step]), _gain(step, row))
    return f"## {step}: {name}\n\n{_wrapped(' '.join(sentences))}"


def _read(seen: Row) -> str:
    """Describe the assembly's facts in a sentence."""
    spills = f"{seen['spills']} spilled words" if seen["spills"] else "no spills"
    return (
        f"The assembly: {seen['products']}, {seen['registers']} registers a thread, {spills}, "
        f"{seen['shared']} bytes of shared memory; the loop has {_loads(seen)}."
    )


def _loads(seen: Row) -> str:
    widths = " and ".join(f"{times} of {width} bytes" for width, times in seen["loads"].items())
    kind = "by `cp.async`" if seen["cp_async"] else "into registers"
    return f"loads {kind}, {widths}"


def _gain(step: str, row: Row) -> str:
    """Give a step's gain over the one before, v4's over PyTorch's calls; empty without times."""
    names = list(STEPS)
    before = EPILOGUE if step == "v4" else names[max(names.index(step) - 1, 0)]
    mine, other = _microseconds(row, step), _microseconds(row, before)
    if mine is None or other is None or step == before:
        return ""
    return f"At {row['size']['N']} it is {other / mine:.3g} times as fast as {before}."


def _microseconds(row: Row, name: str) -> float | None:
    median: float | None = row.get("times", {}).get(name, {}).get("p50_us")
    return median


def _source(results: Mapping[str, Any]) -> str:
    origin = results["provenance"]
    what = f"{origin['device']}, L2 cold, p50 of interleaved launches"
    return (
        f"{results['dtype']}, M = N = K; {what}. Triton {origin['triton']}, {origin['date'][:10]}, "
        "[ladder.json](../benchmarks/results/ladder.json) by `python -m benchmarks.ladder`. v4 is "
        "held against `torch.addmm` and `gelu`, the others against `torch.matmul`. Loads are those "
        "of the loop from global memory, by their bytes. The configs of v3 and v4 are those that "
        "asmtune found."
    )


_HEADINGS: Final = (
    *("size", "step", "time, us", "TFLOP/s", "speed by PyTorch's", "multiplies by", "registers"),
    *("spilled words", "shared bytes", "loads", "by cp.async", "config"),
)


def _table(rows: Sequence[Row]) -> str:
    return table(_HEADINGS, [cells for row in rows for cells in _of(row)])


def _of(row: Row) -> Iterator[tuple[str, ...]]:
    """Write the lines of one size: the steps, then the vendor's functions where it is timed."""
    size = row["size"]
    flops = 2.0 * size["M"] * size["N"] * size["K"]
    for name in (*STEPS, *((PRODUCT, EPILOGUE) if "times" in row else ())):
        mine = _microseconds(row, name)
        vendor = _microseconds(row, EPILOGUE if name in ("v4", EPILOGUE) else PRODUCT)
        times = ("-",) * 3
        if mine is not None and vendor is not None:
            times = (f"{mine:.1f}", f"{flops / mine / 1e6:.1f}", f"{vendor / mine:.2g}")
        yield (str(size["N"]), name, *times, *_cells(row["assembly"].get(name)))


def _cells(seen: Row | None) -> tuple[str, ...]:
    if seen is None:
        return ("-",) * 7
    resources = (str(seen[name]) for name in ("registers", "spills", "shared"))
    widths = ", ".join(f"{times} of {width}" for width, times in seen["loads"].items())
    return (seen["products"], *resources, widths, str(seen["cp_async"]), _config(seen["config"]))


def _config(values: Mapping[str, int]) -> str:
    """Format a config as `128x128x64, 8 warps, 3 stages`; v0 has a depth alone."""
    tile = "x".join(str(values[f"BLOCK_{axis}"]) for axis in "MNK" if f"BLOCK_{axis}" in values)
    counts = {"warp": values["num_warps"], "stage": values["num_stages"]}
    return ", ".join([tile, *(f"{n} {word}{'s' * (n > 1)}" for word, n in counts.items())])
