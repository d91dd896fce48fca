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
from pathlib import Path
from typing import Any, TextIO

from asmtune.triton_api.interpreter import quick_interpreter

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


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer calls, a line of JSON each, until there are no more."""
    import torch

    for line in requests:
        function, *arguments = json.loads(line)
        module, _, name = function.partition(":")
        torch.manual_seed(0)
        try:
            called = getattr(importlib.import_module(module), name)
            with quick_interpreter():
                outcome = {"result": called(*arguments)}
        except BaseException:  # noqa: BLE001 - the test that called it raises it
            outcome = {"error": traceback.format_exc()}
        answers.write(json.dumps(outcome) + "\n")
        answers.flush()


if __name__ == "__main__":
    real = sys.stdout
    sys.stdout = sys.stderr  # what a kernel prints is no answer
    serve(sys.stdin, real)
