"""Attention's code for sm_90: tensor cores, asynchronous copies, and no spills."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.cubin import read_cubin
from asmtune.kernels import _attention_backward_q, attention
from asmtune.kernels import _attention_spec as exact
from asmtune.kernels._attention_host import (
    Attending,
    backward_arguments,
    mask_arguments,
    sizes,
)
from tests.kernels.accuracy import module_of
from tests.kernels.made import artifact_of, noted_launches

HEADS = {"B": 1, "H": 4, "KV": 4, "M": 1024, "N": 1024, "D": 64, "causal": 0}
BACKWARD = ("_attention_backward_q", "attention_backward")
FORWARD = {"BLOCK_M": 64, "BLOCK_N": 64}


def problem_of(name: str, **sizes: int) -> Problem:
    """Make a launch of a kernel; that of queries is of the arguments of attention's."""
    if name != "_attention_backward_q":
        return load_kernel_module(name).problem({**HEADS, **sizes}, "fp16", "meta")
    given, how = exact.backward_inputs({**HEADS, **sizes}, "fp16", "meta")
    delta = given.pop("delta")
    how = how.checked(name, given["q"], given["k"])
    results = {"dq": given["q"], "delta": delta}
    arguments = backward_arguments(given, results, how)
    module = _attention_backward_q
    return Problem(module.kernel, arguments, module.grid, {**HEADS, **sizes}, name)


def made(name: str, config: Config, settings: Settings, target: Target, **sizes: int) -> Artifact:
    """Compile one config."""
    return artifact_of(problem_of(name, **sizes), config, settings, target)


def compiled(name: str, config: Config, settings: Settings, target: Target, **sizes: int) -> str:
    """The PTX of one config, which ptxas must take without spilling."""
    artifact = made(name, config, settings, target, **sizes)
    assert read_cubin(artifact.cubin).spill_words == 0
    return str(artifact.outputs["ptx"])


@pytest.mark.slow
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("causal", [0, 1])
def test_forward_copies(causal: int, dim: int, settings: Settings, target: Target) -> None:
    """Keys come by asynchronous copies of 16 bytes into products of whole warp groups."""
    config = module_of("attention").DEFAULT
    ptx = compiled("attention", config, settings, target, causal=causal, D=dim)
    assert "cp.async.cg.shared.global" in ptx
    assert "wgmma.mma_async.sync.aligned.m64n64k16" in ptx
    assert "mma.sync" not in ptx


@pytest.mark.slow
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_spills_nothing(name: str, dim: int, settings: Settings, target: Target) -> None:
    """The defaults of the kernels of the backward pass keep all they have in registers."""
    config = module_of(name).DEFAULT
    ptx = compiled(name, config, settings, target, D=dim, causal=1)
    assert re.search(r"wgmma.mma_async.sync.aligned.m64n\d+k16", ptx)


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("device", ["A100", "H200", "B200"])
@pytest.mark.parametrize("name", ["attention", *BACKWARD])
def test_masks_spill_nothing(name: str, device: str, settings: Settings) -> None:
    """A mask of scores, or a window to both sides, leaves each default's values in registers."""
    problem = problem_of(name)
    q, k = (problem.arguments[f"{tensor}_ptr"] for tensor in "qk")
    bias = torch.empty((1, 1, 1024, 1024), device="meta")
    for how in (Attending(mask=bias), Attending(mask=bias > 0), Attending(window=(300, 20))):
        given = sizes(q, k, how.checked(name, q, k)) | mask_arguments(how, k, k)
        masked = replace(problem, arguments={**problem.arguments, **given})
        config = module_of(name).DEFAULT
        artifact = artifact_of(masked, config, settings, device)
        # The added mask is 16 values a thread more, which is a few too many for an A100's code.
        assert read_cubin(artifact.cubin).spill_words <= (64 if device == "A100" else 0)


def test_every_size_leaves_configs() -> None:
    """Any head size and number of queries leaves configs, of which the first is one."""
    for name in ("attention", *BACKWARD):
        space = module_of(name).space()
        for dim in (*range(8, 128, 24), 128, 160, 192, 256):
            for rows in (1, 40, 64, 65, 5000):
                shape = {**HEADS, "D": dim, "M": rows, "N": rows}
                assert space.first(**shape) in list(space.configs(**shape))


def test_gradients_of_queries_alone_take_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where keys and values need no gradient, the kernel of queries makes all there are."""
    launches = noted_launches(monkeypatch)
    q, k, v = (torch.zeros(1, 1, 4, 16, dtype=torch.half) for _ in "qkv")
    for leaves, count in (([q], 1), ([k], 2), ([q, v], 2)):
        for tensor in (q, k, v):
            tensor.requires_grad_(any(tensor is leaf for leaf in leaves))
        y = attention.attention(q, k, v)
        launches.clear()
        torch.autograd.grad(y.sum(), leaves)
        assert len(launches) == count
