"""Names of Triton's compile options, as its backend takes them."""

from __future__ import annotations

from dataclasses import fields

from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

from asmtune.compile.toolchain import option_names
from asmtune.core.config import OPTION_AXES


def test_names_are_those_of_the_options_object() -> None:
    """A launch may give what Triton's own options object holds, asmtune's axes among it."""
    options = make_backend(GPUTarget("cuda", 90, 32)).parse_options({})
    assert option_names() == {field.name for field in fields(options)}
    assert option_names() >= {*OPTION_AXES, "launch_pdl", "enable_fp_fusion", "ir_override"}
