"""Every form of decorator and space, read alike by each command, also through a host function."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from asmtune.cli.kernel_arguments import KernelArguments
from asmtune.core.hardware.shipped import load_target
from tests.command_lines import Commands

FILE: Final = """
import torch, triton
import triton.language as tl
from asmtune import Config, Space, asm_autotune

def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

@triton.jit
def ruled(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + at, tl.load(x + at) * 2)
    else:
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

jitted = triton.jit(scale)
AXES = {"BLOCK": (128, 256), "num_warps": (2, 4)}
POINTS = [(block, warps) for block in (128, 256) for warps in (2, 4)]
LISTED = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in POINTS]
OWN = [Config({"BLOCK": block}, num_warps=warps) for block, warps in POINTS]
EVEN = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})

def made():
    return Space(AXES)

FORMS = {
    "asm_space": asm_autotune(space=Space(AXES))(jitted),
    "asm_dict": asm_autotune(space=AXES)(jitted),
    "asm_list": asm_autotune(space=OWN)(jitted),
    "asm_triton_list": asm_autotune(space=LISTED)(jitted),
    "asm_function": asm_autotune(space=made)(jitted),
    "asm_function_of_dict": asm_autotune(space=lambda: AXES)(jitted),
    "asm_configs": asm_autotune(configs=LISTED, key=["n"])(jitted),
    "asm_own_configs": asm_autotune(OWN, ["n"])(jitted),
    "asm_over_rules": asm_autotune(space=AXES)(EVEN(ruled)),
    "rules_over_asm": EVEN(asm_autotune(space=AXES)(ruled)),
    "triton_list": triton.autotune(LISTED, key=["n"])(jitted),
    "triton_over_rules": triton.autotune(LISTED, key=["n"])(EVEN(ruled)),
    "rules_over_triton": EVEN(triton.autotune(LISTED, key=["n"])(ruled)),
    "rules_over_asm_configs": EVEN(asm_autotune(configs=LISTED)(ruled)),
    "asm_auto": asm_autotune(space="auto")(jitted),
    "auto_over_rules": asm_autotune(space="auto")(EVEN(ruled)),
    "rules_over_auto": EVEN(asm_autotune(space="auto")(ruled)),
    "plain": jitted,
    "plain_rules": EVEN(ruled),
}
globals().update(FORMS)

def early(configs, named, **keywords):
    assert {**named, **keywords}["n"] == 65536
    return [config for config in configs if config.kwargs["BLOCK"] == 128]

BY = {"early_config_prune": early}
PRUNED = {
    "triton_pruned": triton.autotune(LISTED, key=["n"], prune_configs_by=BY)(jitted),
    "rules_over_triton_pruned": EVEN(triton.autotune(LISTED, ["n"], BY)(ruled)),
    "asm_pruned": asm_autotune(LISTED, ["n"], BY)(jitted),
    "asm_space_pruned": asm_autotune(space=AXES, prune_configs_by=BY)(jitted),
    "rules_over_asm_pruned": EVEN(asm_autotune(LISTED, ["n"], BY)(ruled)),
}
FORMS.update(PRUNED)

def host(x, form, block=None):
    fixed = {} if block is None else {"BLOCK": block}
    grid = lambda values: (triton.cdiv(x.numel(), values["BLOCK"]),)
    FORMS[form][grid](x, x.numel(), **fixed)
"""

CHOSEN: Final = {
    *("asm_space", "asm_dict", "asm_list", "asm_triton_list", "asm_function"),
    *("asm_function_of_dict", "asm_configs", "asm_own_configs", "triton_list"),
    *("asm_over_rules", "rules_over_asm", "rules_over_asm_configs"),
    *("triton_over_rules", "rules_over_triton"),
}
"""Forms that name the configs of `WANTED`."""

PROPOSED: Final = {"asm_auto", "auto_over_rules", "rules_over_auto"}
PLAIN: Final = {"plain", "plain_rules", "scale"}

WANTED: Final = {(block, warps) for block in (128, 256) for warps in (2, 4)}
PROPOSAL: Final = {
    (block, warps)
    for block in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    for warps in (1, 2, 4, 8, 16)
}

KERNEL: Final = ("--arg", "x=fp16[n]", "--arg", "n=65536", "--grid", "cdiv(n, BLOCK)")
HOST: Final = ("--arg", "x=fp16[65536]")
AXES: Final = ("--axis", "BLOCK=128,256", "--axis", "num_warps=2,4")


def cases() -> list[tuple[str, str, set[tuple[int, int]], tuple[str, ...]]]:
    """Every form as a kernel and, if it is launched, by the host function."""
    rows = []
    for form in sorted(CHOSEN | PROPOSED | PLAIN):
        wanted = PROPOSAL if form in PROPOSED else WANTED
        axes = AXES if form in PLAIN else ()
        rows.append((form, "kernel", wanted, (*KERNEL, *axes)))
        if form != "scale":
            given = (*HOST, "--arg", f"form={form}", *axes)
            rows.append((form, "host", wanted, given))
    return rows


@pytest.fixture
def file(commands: Commands) -> str:
    """The file of all forms."""
    path = commands.folder / "forms.py"
    path.write_text(FILE)
    return str(path)


def read(commands: Commands, *arguments: str) -> dict[str, Any]:
    """Run a command; return its JSON."""
    ran = commands.run(*arguments)
    assert ran.code == 0, ran
    document: dict[str, Any] = json.loads(ran.out)
    return document


@pytest.mark.parametrize(("form", "way", "wanted", "given"), cases())
def test_each_form_is_read_alike(
    commands: Commands,
    file: str,
    form: str,
    way: str,
    wanted: set[tuple[int, int]],
    given: tuple[str, ...],
) -> None:
    """The report and `explain` judge the configs that the form names, and no others."""
    subject = f"{file}:{form if way == 'kernel' else 'host'}"
    (report,) = read(commands, "prune-report", subject, *given, "--format", "json")["reports"]
    configs = [verdict["config"] for verdict in report["verdicts"]]
    assert {(one["BLOCK"], one["num_warps"]) for one in configs} == wanted
    assert report["counts"]["candidates"] == len(wanted)
    kept = next(verdict for verdict in report["verdicts"] if verdict["kept"])
    values = ",".join(f"{n}={kept['config'][n]}" for n in ("BLOCK", "num_warps"))
    explained = read(commands, "explain", subject, *given, "--config", values, "--format", "json")
    assert explained["verdict"]["config"] == kept["config"]
    assert explained["verdict"]["predicted_us"] == kept["predicted_us"]
    assert explained["ranked"] == sum(one["rank"] is not None for one in report["verdicts"])


@pytest.mark.parametrize(
    "form",
    ["triton_pruned", "rules_over_triton_pruned", "asm_pruned", "asm_space_pruned",
     "rules_over_asm_pruned"],
)  # fmt: skip
def test_a_launch_is_pruned_by_its_decorator(file: str, form: str) -> None:
    """A host function's launch has the configs that `prune_configs_by` leaves, in each form."""
    arguments = KernelArguments(f"{file}:host", values=("x=fp16[65536]", f"form={form}"))
    (loaded,) = arguments.load(load_target("H200"))
    configs = loaded.space.points(**loaded.problem.shape)
    assert [(one.kwargs["BLOCK"], one.num_warps) for one in configs] == [(128, 2), (128, 4)]
