"""Disassembles a cubin to SASS text with the `nvdisasm` that comes with Triton.

It takes a third to half a second per kernel of 500 to 2,000 instructions, most of it the tool's
start (triton 3.6, nvdisasm 12.8). So only configs that somebody looks at are disassembled.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from asmtune.base.child import temporary_files
from asmtune.core.records.artifacts import Failure

STAGE: Final = "sass"
"""The stage of a failure to disassemble."""

TIMEOUT_S: Final = 30.0

_SHOWN: Final = 400  # characters of the tool's own message


def disassemble(cubin: bytes, timeout_s: float = TIMEOUT_S) -> str | Failure:
    """Run `nvdisasm -g -c` on an ELF file: code with labels, and source lines if it has some.

    The tool is ended after `timeout_s` seconds.
    """
    from asmtune.triton_api.compiler import disassembler

    try:
        tool = disassembler()
    except (RuntimeError, OSError) as error:
        detail = f"{error}; install triton with its tools, or set TRITON_NVDISASM_PATH"
        return Failure(STAGE, "tool", detail)
    with temporary_files(), tempfile.TemporaryDirectory(prefix="asmtune-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [tool, "-g", "-c", str(path)],
                capture_output=True,
                timeout=timeout_s,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            detail = f"nvdisasm took too long: {error.timeout:g} s for {len(cubin):,} bytes"
            return Failure(STAGE, "timeout", detail)
        except OSError as error:
            return Failure(STAGE, "tool", f"{tool}: {error.strerror or error}")
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        message = " ".join((done.stderr.decode(errors="replace") or text).split())
        message = message.replace(str(path), "the cubin")[:_SHOWN]
        return Failure(STAGE, "nvdisasm", f"nvdisasm ended with {done.returncode}: {message}")
    return text
