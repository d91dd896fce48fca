"""The command line: commands parse, call the library, and render."""

from __future__ import annotations

import sys
import warnings


def main() -> None:
    """Run `asmtune`; exit with 0, 1 for findings, 2 for bad input, with one line on stderr.

    Exits 130 after Ctrl-C, 141 where the reader of stdout has gone, 1 where stdout cannot be
    written. `asmtune run` ends as the program does that it was given.
    """
    try:
        from asmtune.cli.streams import guarded

        outcome = guarded(_run)
    except KeyboardInterrupt:  # before there are signals to hold
        print("asmtune: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    if isinstance(outcome, int):
        sys.exit(outcome)
    outcome.execute()  # type: ignore[attr-defined]


def _run() -> object:
    from asmtune.cli.streams import allow_interrupts

    with warnings.catch_warnings():
        # Triton's advice on its own defaults is not for who runs a command of asmtune's.
        warnings.filterwarnings("ignore", module=r"triton\.")
        warnings.showwarning = _show
        from asmtune.cli.app import application_for, run

        application_for(sys.argv[1:])  # modules of the command are imported before Ctrl-C raises
        allow_interrupts()
        return run(sys.argv[1:])


def _show(message: Warning | str, *_: object, **__: object) -> None:
    from asmtune.cli.output import print_line

    print_line(f"asmtune: {' '.join(str(message).split())}", err=True)
