"""A process with Triton's interpreter, which runs functions of the tests by name.

Triton reads TRITON_INTERPRET when it is imported, so that kernels cannot be interpreted and
compiled by one process. A process for each check would import PyTorch and Triton anew, which
takes longer than most checks.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parent.parent


class Interpreter:
    """A child process that is started by the first call, and again by the next if it has died.

    Args:
        cache_dir: the child's folder of artifacts, store and errors.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._child: subprocess.Popen[str] | None = None

    def call(self, function: str, *arguments: Any) -> Any:
        """Return what `module:function` returns for JSON arguments; all is random by seed 0.

        Raises:
            RuntimeError: the function raised, or the process died; with what it said.
        """
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps([function, *arguments]) + "\n")
        child.stdin.flush()
        answer = child.stdout.readline()
        if not answer:
            code = child.wait()
            raise RuntimeError(f"the interpreter's process ended with {code}: {self._errors()}")
        outcome = json.loads(answer)
        if "error" in outcome:
            raise RuntimeError(f"{function} of {arguments} raised:\n{outcome['error']}")
        return outcome["result"]

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            # The test's processes fill the CPUs: more threads for small tensors only wait.
            more = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
            with self._errors_path.open("w") as errors:
                self._child = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-m", "tests.interpreter"],
                    env={**os.environ, **more, "ASMTUNE_CACHE_DIR": str(self._cache_dir)},
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        return self._child

    @property
    def _errors_path(self) -> Path:
        return self._cache_dir / f"interpreter-{os.getpid()}.txt"

    def _errors(self) -> str:
        return self._errors_path.read_text()[-3000:]


def hasten() -> None:
    """Leave out what Triton's interpreter does again and again, and what changes no result.

    Kernels take about 40 % of the time that they take without it.
    """
    _patch_language_once_a_launch()
    _leave_out_unread_checks()
    _share_types()


def _patch_language_once_a_launch() -> None:
    """Let a launch patch `triton.language` once for each module of its functions.

    Triton's interpreter patches it again at each call of a device function, for each pair of
    elements that `tl.reduce` combines too, which takes up to nine tenths of a launch.
    """
    from triton.runtime import interpreter

    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[int] = set()

    def once(function: Any) -> Any:
        module = id(function.__globals__)
        if module in patched:
            return interpreter._LangPatchScope()
        patched.add(module)
        return patch(function)

    def launched(self: Any, *arguments: Any, **keywords: Any) -> Any:
        patched.clear()  # the launch before has taken its patches back
        return launch(self, *arguments, **keywords)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = once, launched


def _leave_out_unread_checks() -> None:
    """Compute no overflow checks where nothing asserts them, and each NumPy dtype once.

    The interpreter computes sums and products of int32 again in int64 and compares them with
    the limits; without its option `debug` it then drops the outcome.
    """
    from triton.runtime import interpreter

    builder, numpy_dtype = interpreter.interpreter_builder, interpreter._get_np_dtype
    asserts = builder.options.debug
    builder.options = replace(builder.options, sanitize_overflow=asserts)
    dtypes: dict[str, Any] = {}

    def shared(dtype: Any) -> Any:
        scalar = dtype.scalar
        if scalar.name not in dtypes:
            dtypes[scalar.name] = numpy_dtype(scalar)
        return dtypes[scalar.name]

    interpreter._get_np_dtype = shared


def _share_types() -> None:
    """Let blocks of one shape share what Triton derives from it: each operation makes several."""
    from triton.language import core

    make_block, make_tensor = core.block_type.__init__, core.tensor.__init__
    blocks: dict[Any, dict[str, Any]] = {}
    tensors: dict[Any, dict[str, Any]] = {}

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = [s.value if isinstance(s, core.constexpr) else s for s in shape]
        known = blocks.get((element_ty.name, *sizes))
        if known is None:
            make_block(self, element_ty, shape)
            blocks[element_ty.name, *sizes] = dict(vars(self))
        else:
            vars(self).update(known, element_ty=element_ty)

    def tensor(self: Any, handle: Any, type: Any) -> None:  # noqa: A002 - Triton's keyword
        sizes = (*type.shape,) if type.is_block() else ()
        known = tensors.get(sizes)
        if known is None:
            make_tensor(self, handle, type)
            tensors[sizes] = dict(vars(self))
        else:
            vars(self).update(known, handle=handle, type=type, dtype=type.scalar)

    core.block_type.__init__, core.tensor.__init__ = block, tensor


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer calls, a line of JSON each, until there are no more."""
    import torch

    hasten()
    for line in requests:
        function, *arguments = json.loads(line)
        module, _, name = function.partition(":")
        torch.manual_seed(0)
        try:
            outcome = {"result": getattr(importlib.import_module(module), name)(*arguments)}
        except BaseException:  # noqa: BLE001 - the test that called it raises it
            outcome = {"error": traceback.format_exc()}
        answers.write(json.dumps(outcome) + "\n")
        answers.flush()


if __name__ == "__main__":
    real = sys.stdout
    sys.stdout = sys.stderr  # what a kernel prints is no answer
    serve(sys.stdin, real)
