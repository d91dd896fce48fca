"""The command line: commands parse, call the library, and render."""

from __future__ import annotations

import sys
import warnings


def main() -> None:
    """Runs `asmtune`; exits 0, 1 for findings, 2 for bad input, with one line on stderr.

    `asmtune run` ends as the program does that it was given.
    """
    from asmtune.cli.app import run

    with warnings.catch_warnings():
        # Triton's advice on its own defaults is not for who runs a command of asmtune's.
        warnings.filterwarnings("ignore", module=r"triton\.")
        warnings.showwarning = _show
        outcome = run(sys.argv[1:])
    if isinstance(outcome, int):
        sys.exit(outcome)
    outcome.execute()


def _show(message: Warning | str, *_: object, **__: object) -> None:
    print(f"asmtune: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201
