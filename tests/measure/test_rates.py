"""What is measured of a device, over a clock and kernels that stand in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.base.settings import Settings
from asmtune.cli import targets as command
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.descriptor import descriptor_of, parse_target
from asmtune.core.hardware.driver import DeviceAttributes
from asmtune.core.hardware.shipped import load_target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.measure import rates
from asmtune.measure.rates import MeasuredRate, MeasuringSizes, RateMeter, measured_target
from asmtune.measure.timing.clock import Subject
from tests.command_lines import Commands
from tests.driver_tables import pretend
from tests.interpreter import Interpreter
from tests.sample_kernels import tensor

US = 50.0
SMALL = MeasuringSizes(copied=1 << 16, side=32, steps=4, programs_per_sm=(1, 2), block=64)


class FixedClock:
    """Runs each launch, and tells that it took 50 us."""

    def warm_up(self, subject: Subject) -> Failure | None:
        """Run it once."""
        outcome = guarded("launch", subject.run)
        return outcome if isinstance(outcome, Failure) else None

    def round(self, subjects: Sequence[Subject]) -> list[float]:
        """Run each once."""
        for subject in subjects:
            subject.run()
        return [US] * len(subjects)


class HostKernel:
    """Stands in for a Triton kernel: counts its launches."""

    def __init__(self) -> None:
        self.grids: list[Any] = []

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *_, **__: self.grids.append(grid)


def meter(patch: pytest.MonkeyPatch, name: str = "H200") -> RateMeter:
    """A meter of the host, called a device."""
    for kernel in ("read_again", "nothing"):
        patch.setattr(rates, kernel, HostKernel())
    clock = FixedClock()
    return RateMeter(load_target(name), clock, clock, place="cpu", sizes=SMALL)


def test_each_rate_is_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and FLOPs of a launch over its median time, at the sizes that were asked for."""
    made = meter(monkeypatch)
    before = torch.backends.cuda.matmul.allow_tf32  # another test may have set it
    found = {rate.name: rate.value for rate in made.rates()}
    assert found["measured_launch_us"] == pytest.approx(US)
    assert found["measured_dram_bytes_per_s"] == pytest.approx(2 * (1 << 16) / (US / 1e6))
    assert found["l2_bytes_per_s"] == pytest.approx(4 * 64 * 4 * 2 * 132 / (US / 1e6))
    for dtype in ("fp16", "bf16", "tf32", "fp64"):
        name = f"measured_tensor_flops_per_s.{dtype}"
        assert found[name] == pytest.approx(2 * 32**3 / (US / 1e6)), dtype
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dtype that PyTorch cannot multiply costs its own figure alone."""
    made = meter(monkeypatch)

    def refuse(side: int, place: str) -> Callable[[], object]:
        raise RuntimeError(f"no FP8 of {side} on {place}\nand more")

    monkeypatch.setitem(rates._MULTIPLY, "fp8", refuse)  # type: ignore[arg-type]
    found = [rate.name for rate in made.rates()]
    assert "measured_tensor_flops_per_s.bf16" in found
    reason = made.failures["measured_tensor_flops_per_s.fp8"]
    assert "no FP8 of 32 on cpu" in reason
    assert "\n" not in reason


def test_a_long_product_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that would need long for a product gets a smaller one."""
    made = meter(monkeypatch)
    monkeypatch.setattr(rates, "_LONG_S", 0.0)
    (found,) = (rate for rate in made.rates() if rate.name.endswith("bf16"))
    assert "of 16 cubed" in found.how


def test_measured_figures_say_how_and_when() -> None:
    """A measured descriptor reads back, and keeps the other figures with their sources."""
    base = load_target("A10G")
    taken = [
        MeasuredRate("measured_dram_bytes_per_s", 5.123456e11, "device copy"),
        MeasuredRate("measured_tensor_flops_per_s.fp16", 6.1e13, "matrix product"),
        MeasuredRate("l2_bytes_per_s", 2.2e12, "reads"),
        MeasuredRate("measured_launch_us", 2.345678, "an empty kernel"),
    ]
    target = measured_target(base, "NVIDIA A10G", taken, "torch 2.11.0, 2026-01-02")
    again = parse_target(json.dumps(descriptor_of(target)), "a10g.json")
    assert again.figures == target.figures
    assert again.measured_launch_us == 2.346
    assert again.measured_tensor_flops_per_s == {"fp16": 6.1e13}
    figure = again.figure("l2_bytes_per_s")
    assert (figure.value, figure.kind) == (2.2e12, "measured")
    assert figure.source == "measured on one NVIDIA A10G (torch 2.11.0, 2026-01-02): reads"
    assert again.figure("sms") == base.figure("sms")


def test_reads_that_are_not_those_of_l2_are_left_out() -> None:
    """A bandwidth of L2 below the memory's is no figure of a descriptor."""
    base = load_target("H200")
    target = measured_target(base, "NVIDIA H200", [MeasuredRate("l2_bytes_per_s", 1e12, "r")], "w")
    assert target.figure("l2_bytes_per_s") == base.figure("l2_bytes_per_s")


@pytest.mark.slow(seconds=2)
def test_the_kernel_reads_every_tile(interpreter: Interpreter) -> None:
    """Programs walk round the buffer, each from its own tile on."""
    found = interpreter.call("tests.measure.interpreted_rates:sums", 5, 3, 4, 16)
    tiles = [sum(range(16 * tile, 16 * tile + 16)) for tile in range(5)]
    assert found == [sum(tiles[(start + 4 * step) % 5] for step in range(3)) for start in range(4)]


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("name", ["T4", "A100", "H200", "B200"])
def test_the_kernels_compile(name: str, empty_settings: Settings) -> None:
    """Both kernels compile for old and new devices, and the loads go past L1."""
    arguments = {
        "x_ptr": tensor(torch.float32),
        "out_ptr": tensor(torch.float32),
        "tiles": 99,
        "steps": 64,
    }
    texts = []
    for problem, config in (
        (Problem(rates.read_again, arguments, (4,)), Config({"BLOCK": 4096})),
        (Problem(rates.nothing, {}, (1,)), Config({})),
    ):
        request = Lowering(problem, load_target(name), 30).request(config)
        assert isinstance(request, LowerRequest), request
        artifact = compile_one(request, empty_settings)
        assert isinstance(artifact, Artifact), artifact
        texts.append(artifact.outputs["ptx"])
    assert "ld.global.cg" in texts[0]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """A GPU in this machine that no file describes."""
    pretend("NVIDIA A30", monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    return "NVIDIA A30"


def test_the_command_writes_a_descriptor(
    device: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The measured target is found by launches and commands from then on."""
    monkeypatch.setenv("ASMTUNE_TARGETS", str(tmp_path / "own"))
    measured = [MeasuredRate("measured_dram_bytes_per_s", 8.1e11, "device copy")]
    monkeypatch.setattr(command, "_rates", lambda _: (measured, {"l2_bytes_per_s": "no room"}))
    commands = Commands(tmp_path, capsys)
    ran = commands.run("targets", "measure")
    assert ran.code == 0, ran
    assert "8.1e+11" in ran.out
    assert "l2_bytes_per_s: not measured: no room" in ran.err
    target = load_target(device)
    assert (target.sms, target.measured_dram_bytes_per_s) == (56, 8.1e11)
    assert commands.run("targets", "show", device, "--format", "json").code == 0
    shown = json.loads(commands.run("targets", "show", "--format", "json").out)
    assert shown["measured_dram_bytes_per_s"]["kind"] == "measured"
    refused = commands.refused("targets", "measure", "--output", str(tmp_path))
    assert "or a folder itself; name a file" in refused


def test_the_drivers_attributes_are_shown(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the driver tells is JSON that reads back, with versions and date."""
    ran = Commands(tmp_path, capsys).run("targets", "show", "--driver")
    document = json.loads(ran.out)
    attributes = DeviceAttributes(document["name"], document["attributes"])
    assert (attributes.name, attributes.sms) == (device, 56)
    assert {"torch", "triton"} <= set(document["versions"])
