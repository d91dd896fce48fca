"""Contracts of Triton's compiler and of its caches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from asmtune.base.errors import ProblemError
from asmtune.core.config import AMD_OPTIONS, OPTION_AXES
from asmtune.triton_api import caches, compiler
from asmtune.triton_api.compiler import Specialised, Toolchain
from tests import gluon_kernels
from tests.compile.triton_reference import launching_on
from tests.triton_api.tiny_kernels import tiny, tuned

MACHINES = [("cuda", 90, 32), ("hip", "gfx942", 64)]


def specialised(toolchain: Toolchain, **options: Any) -> Specialised:
    """The tiny kernel for a tensor and a number that 16 divides."""
    values = {"x_ptr": torch.zeros(16), "n": 16, "scale": 2.0, "BLOCK": 16, **options}
    return toolchain.specialise(tiny, values)


@pytest.mark.parametrize("machine", MACHINES)
def test_stages_from_a_launch_to_machine_code(machine: tuple[str, Any, int]) -> None:
    """A kernel is specialised, lowered, and compiled stage by stage to the backend's code."""
    toolchain = Toolchain(*machine)
    made = specialised(toolchain, num_warps=2)
    assert made.signature == {"x_ptr": "*fp32", "n": "i32", "scale": "fp32", "BLOCK": "constexpr"}
    text, read = toolchain.front_end(made)
    assert "tt.func public @tiny" in text
    assert "num_warps" not in read
    plain = compiler.plain_options(made.options)
    assert (plain["num_warps"], "extern_libs" in plain) == (2, False)
    options = toolchain.options(plain)
    stages = toolchain.stages(options)
    assembly, code = [*stages][-2:]
    assert [*stages][:3] == ["ttir", "ttgir", "llir"]
    assert (assembly, code) == (("ptx", "cubin") if machine[0] == "cuda" else ("amdgcn", "hsaco"))
    module, metadata = toolchain.parse(text), dict(options.__dict__)
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == "ttgir":
            allocated = toolchain.allocate(toolchain.parse(str(module)), options)
            assert (allocated["shared"], allocated.get("num_warps", 2)) == (0, 2)
    assert isinstance(module, bytes)
    assert (module[:4], metadata["name"], metadata["shared"]) == (b"\x7fELF", "tiny", 0)


def test_identities_of_a_source() -> None:
    """Equal launches share a key; a divisible number, another type and a constexpr do not."""
    toolchain = Toolchain(*MACHINES[0])
    one = specialised(toolchain)
    assert (one.key, one.identity) == (specialised(toolchain).key, specialised(toolchain).identity)
    others = [{"n": 17}, {"x_ptr": torch.zeros(16).half()}, {"BLOCK": 32}]
    assert len({one.key, *(specialised(toolchain, **other).key for other in others)}) == 4


def test_nothing_is_compiled_for_debugging_unasked() -> None:
    """Assertions of a kernel are compiled where a launch or the function asks for them."""
    chain = Toolchain("cuda", 90, 32)
    assert [specialised(chain, **asked).options.debug for asked in ({}, {"debug": True})] == [
        *(False, True)
    ]


def test_a_refused_argument_is_named() -> None:
    """The first argument that Triton takes no value of is named; a good launch has none."""
    toolchain = Toolchain(*MACHINES[0])
    values = {"x_ptr": torch.zeros(1), "n": 1, "scale": torch.zeros(1).bool, "BLOCK": 16}
    assert toolchain.refused_argument(tiny, values) == "scale"
    assert toolchain.refused_argument(tiny, {**values, "scale": 1.0}) is None
    with pytest.raises((TypeError, KeyError)):
        toolchain.specialise(tiny, values)


def test_gluon_has_a_front_end_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Gluon kernel's source makes TTGIR, and its stages begin there."""
    assert compiler.source_class(tiny) is not compiler.source_class(gluon_kernels.scale)
    toolchain = Toolchain(*MACHINES[0])
    values = {"x_ptr": torch.zeros(128), "y_ptr": torch.zeros(128), "n": 128, "BLOCK": 128}
    made = toolchain.specialise(gluon_kernels.scale, {**values, "num_warps": 4})
    assert "#ttg.blocked" in toolchain.front_end(made)[0]
    assert "ttir" not in toolchain.stages(made.options, gluon=True)
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon._runtime", None)
    with pytest.raises(ProblemError, match="install another triton"):
        compiler.source_class(gluon_kernels.scale)


LOGS = {
    "k.py:7:4: error: bad\nlayout\n": "k.py line 7: bad layout",
    "x error: no such thing": "no such thing",
    "m.cpp:1: f: Assertion `ok' failed.": "Assertion `ok' failed",
    "error: Failures have been detected": "",
    "a remark": "",
}


def test_errors_of_mlir_are_one_line() -> None:
    """The first error on the compiler's stderr is told in one line."""
    assert {log: compiler.compiler_error(log) for log in LOGS} == LOGS


def test_triton_brings_a_disassembler() -> None:
    """The path is that of a program."""
    assert Path(compiler.disassembler()).is_file()


def test_names_are_those_of_the_options_object() -> None:
    """A launch may give what the options of Triton's backends hold, asmtune's axes among it."""
    targets = (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64))
    options = [make_backend(target).parse_options({}) for target in targets]
    assert compiler.option_names() == {field.name for each in options for field in fields(each)}
    assert compiler.option_names() >= AMD_OPTIONS.keys()
    assert compiler.option_names() >= {
        *OPTION_AXES,
        "launch_pdl",
        "enable_fp_fusion",
        "ir_override",
    }


def test_variables_and_identities_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that changes code is listed and changes it; another tool is another compiler."""
    before, front = caches.compiler_identity(), caches.front_end_identity()
    assert caches.environment()["TRITON_PTXAS_PATH"] is None
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    assert caches.environment()["TRITON_DEFAULT_FP_FUSION"] == "0"
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/bin/true")
    assert caches.compiler_identity() != before
    monkeypatch.setattr(knobs.language, "fp32_default", "ieee")
    assert caches.front_end_identity() == (front[0], "ieee") != front
    caches.hash_triton()


def compiled(toolchain: Toolchain, made: Specialised) -> caches.CompiledCode:
    """All stages of a source, and a marker in the place of its machine code."""
    text, options = toolchain.front_end(made)[0], made.options
    module, metadata = toolchain.parse(text), dict(options.__dict__)
    outputs = {"ttir": text}
    for name, stage in toolchain.stages(options).items():
        module = stage(module, metadata)
        outputs[name] = str(module) if isinstance(module, str) or name == "ttgir" else ""
    outputs["ttir"] = text
    return caches.CompiledCode(outputs, b"\x7fELF marker", metadata)


def test_code_is_put_into_tritons_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's next compile returns what was put there; other code, or a hook, puts nothing."""
    # A knob that is set, or set back, no longer follows its variable in later tests.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    toolchain = Toolchain(*MACHINES[0])
    made = toolchain.specialise(tuned, {"x_ptr": torch.zeros(16), "n": 16, "BLOCK": 16})
    code = compiled(toolchain, made)
    wrong: Mapping[str, str] = {**code.outputs, "ttir": "module {}"}
    with pytest.raises(caches.OtherCodeError):
        caches.put_into_cache(made, toolchain, code._replace(outputs=wrong))
    with monkeypatch.context() as hooked:
        hooked.setattr(knobs.compilation, "listener", print)
        assert not caches.put_into_cache(made, toolchain, code)
    assert caches.put_into_cache(made, toolchain, code)
    with launching_on(90):
        kernel = tuned.warmup(torch.zeros(16), 16, BLOCK=16, grid=(1,))
    assert kernel.asm["cubin"] == b"\x7fELF marker"


def test_a_triton_that_nobody_has_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is newer than the newest tried is named; a patch of that, or an older, is not."""
    assert compiler.newer_than_tried() is None
    major, minor = map(int, compiler.NEWEST_TRIED.split("."))
    untried = (f"{major}.{minor + 1}.0", f"{major}.{minor + 10}.0+git1a2b3c", f"{major + 1}.0.0")
    for version in (*untried, f"{major}.{minor}.9", f"{major}.{minor - 1}.0"):
        monkeypatch.setattr("triton.__version__", version)
        assert compiler.newer_than_tried() == (version if version in untried else None)
