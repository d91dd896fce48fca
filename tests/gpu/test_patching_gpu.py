"""An unchanged program on a GPU under `asmtune run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
N = 1 << 20


PROGRAM = """
import sys
import torch, triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": b}) for b in (128, 512, 2048)], key=["n"])
@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)

for n in map(int, sys.argv[1:]):
    x = torch.arange(n, device="cuda", dtype=torch.float32)
    out = torch.empty_like(x)
    scale[lambda values: (triton.cdiv(n, values["BLOCK"]),)](x, out, n, 3.0)
    print(torch.equal(out, x * 3), type(scale).__mro__[1].__name__, len(scale.cache))
"""


def asmtune_run(script: Path, *arguments: str) -> tuple[list[str], list[list[str]]]:
    """Lines of a program under `asmtune run`, and the cells of the table at its end."""
    done = subprocess.run(
        [sys.executable, "-m", "asmtune", "run", "--no-small", str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    cells = [[cell.strip() for cell in line.split("│")] for line in done.stderr.splitlines()]
    return done.stdout.splitlines(), cells


def test_asmtune_run(tmp_path: Path) -> None:
    """A program's kernels are tuned once a key, and its next run takes all from the store."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    said, told = asmtune_run(script, str(N), str(2 * N))
    assert said == ["True AsmAutotuner 1", "True AsmAutotuner 2"]
    (line,) = [cells for cells in told if cells[0] == "__main__.scale"]
    assert (line[1], line[5]) == ("2", "0"), json.dumps(told)
    assert int(line[2]) >= int(line[3]) >= 2
    said, told = asmtune_run(script, str(N), str(2 * N))
    assert said == ["True AsmAutotuner 1", "True AsmAutotuner 2"]
    (line,) = [cells for cells in told if cells[0] == "__main__.scale"]
    assert (line[1], line[2], line[3], line[5]) == ("0", "0", "0", "2"), json.dumps(told)
