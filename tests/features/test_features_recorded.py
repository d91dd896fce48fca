"""All features of recorded compiles: read off the assembly, and sketched.

Dumps of several kernels and devices are in `recorded/`, so that the figures are of one compiler.
`python -m tests.features.test_features_recorded` writes `expected_features.json` anew from them: a
change of it is a change of what every scorer sees. With `--record` it compiles the dumps first.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Sketch
from asmtune.core.records.verdicts import Features
from asmtune.ir.ttir.analysis import Kernel, LaunchArguments
from asmtune.ir.ttir.work import Work
from asmtune.kernels import tiled_matmul as matmul
from asmtune.predict.features.amd import reader_for
from asmtune.predict.features.execution import match_loops
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.reader import launch_features
from asmtune.predict.features.sketch.reader import SketchReader, can_sketch
from asmtune.predict.score.roofline import predict, tail_us
from asmtune.predict.score.vectors import BASE, base_columns
from asmtune.predict.why.access import access_patterns
from tests import launch_kernels as launched
from tests.asm.fixture_kernels import fused_math, lock_add, row_softmax, tma_gemm
from tests.compile.making import accepted, compiled
from tests.workload import workload_kernels as kernels

FOLDER = Path(__file__).parent / "recorded"
EXPECTED = Path(__file__).parent / "expected_features.json"
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
F16, F32, I32 = torch.float16, torch.float32, torch.int32


def product(m: int, n: int, k: int, dtype: str = "fp16") -> Problem:
    """A product of the kernel that ships."""
    return matmul.problem({"M": m, "N": n, "K": k}, dtype, "meta")


def grouped(m: int, n: int, k: int, warps: int, stages: int, **more: Any) -> Config:
    """A config of `product`."""
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}
    return Config({**tile, **more}, num_warps=warps, num_stages=stages)


def plain(kernel: Any, grid: tuple[int, ...], dtype: torch.dtype, names: str, **values: Any) -> Any:
    """A launch of a kernel of the tests."""
    return Problem(kernel, {**launched.pointers(dtype, *names.split()), **values}, grid)


QKVO = "q_ptr k_ptr v_ptr o_ptr"
PACKED = {"K": 512, "N": 256, "stride_s": 640}
WORDS = {"w_ptr": torch.int8, "s_ptr": F32, "z_ptr": I32, "y_ptr": F32}
CASES: dict[str, tuple[Problem, Config, str]] = {
    "wgmma": (product(1024, 1024, 1024), grouped(128, 128, 64, 8, 3), "H200"),
    "mma_sync": (product(1000, 520, 200), grouped(64, 64, 32, 4, 3), "A100"),
    "tcgen05": (product(512, 512, 512), grouped(128, 128, 64, 4, 4), "B200"),
    "tf32": (product(256, 256, 512, "fp32"), grouped(64, 64, 32, 4, 1), "H200"),
    "int8": (product(256, 256, 512, "i8"), grouped(64, 64, 64, 4, 2), "RTX4090"),
    "mfma": (product(512, 512, 512), grouped(128, 64, 32, 4, 2, kpack=2), "MI300X"),
    "fused": (launched.persistent(512, 512, 3, flatten=True), Config(TILE), "H200"),
    "unrolled": (launched.looped(256, 256, 32 * 17, (64, 64), 2), Config(TILE), "A100"),
    "called": (launched.called(3, 512), Config({}), "H200"),
    "causal": (
        plain(launched.causal_attention, (32,), F16, QKVO, N=1024, D=64),
        Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_warps=4),
        "A100",
    ),
    "specialised": (
        plain(tma_gemm, (4, 4), F16, "a_ptr b_ptr c_ptr", M=512, N=512, K=512, WS=True),
        Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=4, num_stages=3),
        "B200",
    ),
    "spilled": (
        plain(row_softmax, (264,), F16, "x_ptr y_ptr", n=8000, stride=8192),
        Config({"BLOCK": 8192}, num_warps=4, maxnreg=32),
        "H200",
    ),
    "crowded": (
        plain(row_softmax, (264,), F16, "x_ptr y_ptr", n=16_000, stride=16_384),
        Config({"BLOCK": 16_384}, num_warps=2),
        "A100",
    ),
    "attention": (
        plain(kernels.attention, (16, 24), F16, QKVO, N=1000, scale=0.1, CAUSAL=False, D=64),
        Config({"BM": 64, "BN": 32}, num_warps=4),
        "H200",
    ),
    "columns": (
        plain(launched.column_copy, (64,), F32, "x_ptr y_ptr", pitch=4096),
        Config({"BLOCK": 1024}),
        "H200",
    ),
    "two_loops": (
        plain(launched.two_loops, (4,), F32, "x_ptr y_ptr", first=100, second=7),
        Config({"BLOCK": 1024}),
        "RTX5090",
    ),
    "twice": (
        plain(kernels.layernorm, (4096,), F32, "x_ptr w_ptr y_ptr", cols=1000, eps=1e-5),
        Config({"BLOCK": 256}, num_warps=8),
        "H200",
    ),
    "lock": (
        Problem(
            lock_add,
            {**launched.pointers(F32, "x_ptr", "y_ptr"), **launched.pointers(I32, "lock_ptr")},
            (7,),
        ),
        Config({"BLOCK": 256}, num_warps=2),
        "A100",
    ),
    "math": (
        plain(fused_math, (30,), F32, "x_ptr y_ptr", n=29_999), Config({"BLOCK": 1024}), "V100"
    ),
    "scans": (plain(kernels.scans, (1,), F32, "x_ptr y_ptr z_ptr"), Config({"BLOCK": 256}), "H200"),
    "packed": (
        Problem(
            kernels.packed_weights,
            {k: v for n, d in WORDS.items() for k, v in launched.pointers(d, n).items()} | PACKED,
            (8,),
        ),
        Config({"BK": 64, "BN": 32, "GROUP": 16}),
        "H100",
    ),
}  # fmt: skip


def record(name: str, settings: Settings) -> None:
    """Compile a case, and write what the features are read off."""
    problem, config, machine = CASES[name]
    lowering = Lowering(problem, load_target(machine), 60)
    artifact = compiled(lowering, config, settings)
    numbers = {
        key: value for key, value in problem.bind(config).items() if isinstance(value, int | float)
    }
    outputs = {key: artifact.outputs[key] for key in artifact.outputs if key != "llir"}
    document = {
        "ttir": accepted(lowering, config).ttir,
        "arch": artifact.arch,
        "entry": artifact.entry,
        "outputs": outputs,
        "cubin": base64.b64encode(_nameless(artifact.cubin)).decode(),
        "metadata": {key: value for key, value in artifact.metadata.items() if _is_plain(value)},
        "numbers": numbers,
        "grid": problem.programs(config),
        "bytes": problem.tensor_bytes,
    }
    data = json.dumps(document).replace(str(Path(__file__).parents[2]), "")
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(data.encode(), mtime=0))


def _nameless(cubin: bytes) -> bytes:
    """Return a cubin whose debug sections do not name folders."""
    return re.sub(rb"/tmp/[\w/.-]*", lambda found: b"x" * len(found[0]), cubin)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def profiles(name: str) -> tuple[dict[str, Profile], Work]:
    """The profiles of a recorded case, each way that there is, and the work of its launch."""
    case = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    target = load_target(CASES[name][2])
    launch = LaunchArguments(case["numbers"], tuple(case["grid"]), case["bytes"], target.sms)
    work = Kernel(case["ttir"]).work(launch)
    artifact = Artifact(
        *("", case["entry"], case["arch"], case["outputs"]),
        *(base64.b64decode(case["cubin"]), case["metadata"], {}),
    )
    made: dict[str, Profile] = {"assembly": reader_for(target)(artifact)}
    if can_sketch(target):
        sketch = Sketch("", case["arch"], case["outputs"]["ttgir"], case["metadata"])
        made["sketch"] = SketchReader(target)(sketch)
    return made, work


def read(name: str) -> dict[str, dict[str, float]]:
    """Features of a recorded case, each way that there is, with the times predicted from them."""
    made, work = profiles(name)
    target = load_target(CASES[name][2])
    found: dict[str, dict[str, float]] = {}
    for way, profile in made.items():
        found[way] = {**launch_features(profile, work, target)}
        for place, one in enumerate(access_patterns(profile, work, target)):
            found[way][f"access {place} {one.pattern}"] = one.share + one.wasted_bytes
    for numbers in found.values():
        features = Features(numbers)
        numbers |= predict(features, target).terms_us | {"tail us": tail_us(features, target)}
        (row,) = base_columns([features], target).tolist()
        numbers |= {f"{COLUMN}{key}": round(value, 5) for key, value in zip(BASE, row, strict=True)}
    return found


COLUMN, TOLERANCE = "column ", (1e-13, 1e-4)


@pytest.mark.parametrize("name", CASES)
def test_features_are_those_of_the_file(name: str) -> None:
    """Every feature, term of the predicted time and access pattern, to the last digit but two.

    The learned scorer's columns are of 32 bits.
    """
    expected = json.loads(EXPECTED.read_text())[name]
    for way, numbers in read(name).items():
        assert numbers.keys() == expected[way].keys()
        wrong = {
            key: (value, expected[way][key])
            for key, value in numbers.items()
            if value != pytest.approx(expected[way][key], rel=TOLERANCE[key.startswith(COLUMN)])
        }
        assert wrong == {}, way


@pytest.mark.parametrize("name", ["wgmma", "causal", "two_loops", "twice", "called"])
def test_loops_without_lines_are_paired_in_order(name: str) -> None:
    """Where no line tells which loop is which, their order and nesting pair them alike."""
    made, work = profiles(name)
    pieces = made["assembly"].segments
    assert not any(0 in piece.lines for piece in pieces)
    assert match_loops([replace(one, lines=frozenset()) for one in pieces], work) == match_loops(
        pieces, work
    )


if __name__ == "__main__":
    if "--record" in sys.argv:
        FOLDER.mkdir(exist_ok=True)
        for one in CASES:
            record(one, Settings.from_environment())
    lines = (f"{json.dumps(n)}: {json.dumps(read(n))}" for n in CASES)
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
