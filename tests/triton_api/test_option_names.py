"""Names of Triton's compile options, as its backend takes them."""

from __future__ import annotations

from dataclasses import fields

from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from asmtune.core.config import AMD_OPTIONS, OPTION_AXES
from asmtune.triton_api.compiler import option_names


def test_names_are_those_of_the_options_object() -> None:
    """A launch may give what the options of Triton's backends hold, asmtune's axes among it."""
    targets = (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64))
    options = [make_backend(target).parse_options({}) for target in targets]
    assert option_names() == {field.name for each in options for field in fields(each)}
    assert option_names() >= AMD_OPTIONS.keys()
    assert option_names() >= {*OPTION_AXES, "launch_pdl", "enable_fp_fusion", "ir_override"}
