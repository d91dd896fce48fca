"""The Gluon GEMM of the examples: compiled for an H200 and judged in all its configs."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import PruneReport
from asmtune.core.space.space import Space
from asmtune.ir.ttir.work import Work
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from tests.gluon_kernels import small_dot
from tests.workload.workload_lowering import flops, moved

GEMM = Path(__file__).parents[2] / "examples" / "gluon_matmul.py"
SHAPE = {"M": 1000, "N": 520, "K": 200}


def funnel(settings: Settings, target: str = "H200") -> Funnel:
    """A funnel that judges each config by its assembly."""
    return Funnel(load_target(target), make_scorer("roofline"), settings)


@pytest.fixture
def report(settings: Settings) -> PruneReport:
    """All configs of the GEMM, judged on a shape that no tile divides."""
    module = load_kernel_module(str(GEMM))
    return funnel(settings).prune(module.problem(SHAPE, "fp16", "meta"), module.space())


@pytest.mark.slow(seconds=20)
def test_every_config_of_the_gemm_is_read(report: PruneReport, settings: Settings) -> None:
    """All 24 compile; FLOPs and bytes are those of whole tiles, shared memory that of the ring.

    Nothing is assumed of the GEMM.
    """
    assert len(report.verdicts) == 24
    assert [note for note in report.notes if "guess" in note] == []
    front = funnel(settings).front(load_kernel_module(str(GEMM)).problem(SHAPE, "fp16", "meta"))
    for verdict in report.verdicts:
        assert verdict.features is not None, verdict
        features, values = verdict.features, verdict.config.all_kwargs()
        m, n, k = values["BLOCK_M"], values["BLOCK_N"], values["BLOCK_K"]
        tiles, steps = ceil(1000 / m) * ceil(520 / n), ceil(200 / k)
        work = front.work(verdict.config)
        assert isinstance(work, Work)
        assert work.exact
        assert features["programs"] == work.programs == tiles
        assert flops(work) == {"f16": 2.0 * tiles * steps * m * n * k}
        assert features["program_flops"] == 2 * steps * m * n * k
        assert moved(work, "read") == tiles * steps * (m + n) * k * 2
        assert moved(work, "write") == tiles * m * n * 2
        ring = values["STAGES"] * (m + n) * k * 2
        assert ring < features["shared_bytes"] < ring + 256
        sums = m * n // (32 * verdict.config.num_warps)
        assert sums <= features["regs_per_thread"] <= 255
        assert features["spill_words"] == 0
        assert (verdict.predicted_us or 0) > 0


def test_rules_of_tritons_own_instructions_do_not_bind_gluon(settings: Settings) -> None:
    """A cap under which no wgmma of its tile fits leaves a kernel that uses mma.sync alone."""
    half = {"device": "meta", "dtype": torch.float16}
    arguments = {
        "a_ptr": torch.empty(256, 16, **half),
        "b_ptr": torch.empty(16, 64, **half),
        "c_ptr": torch.empty(256, 64, device="meta"),
    }
    space = Space({"TILE": [256], "num_warps": [8], "maxnreg": [48, 255]})
    front = funnel(settings).front(Problem(small_dot, arguments, (1,)))
    for verdict in front.verdicts([*space], "assembly", {}):
        assert verdict.failure is None, verdict.failure
        assert verdict.features is not None
        assert verdict.features["text_mma_sync"] > 0
        assert verdict.features["program_flops"] == 2 * 256 * 64 * 16
