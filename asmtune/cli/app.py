"""The application: its commands, and what its errors look like."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from asmtune.base.errors import AsmtuneError
from asmtune.base.fingerprint import version_of
from asmtune.cli import (
    bench,
    cache,
    check,
    collect,
    explain,
    listing,
    prune_report,
    replay,
    retarget,
    roofline,
    targets,
    train,
    tune,
)
from asmtune.cli import run as programs
from asmtune.cli.output import print_line, write_result
from asmtune.cli.streams import INTERRUPTED


class _Commands(TyperGroup):
    """Ends in `typer.Abort` at Ctrl-C, which typer would turn into an exit code of a command."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Abort from interrupt


app: Final = typer.Typer(
    name="asmtune",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_INTERPRET: Final = "TRITON_INTERPRET"
_COMPILING: Final = (
    "prune-report",
    "explain",
    "roofline",
    "tune",
    "bench",
    "replay",
    "retarget",
    "collect",
)


def _show_version(value: bool) -> None:
    if value:
        write_result(f"asmtune {version_of('asmtune')}")
        raise typer.Exit


@app.callback()
def before(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """An assembly-aware autotuner for Triton kernels."""
    is_interpreting = os.environ.get(_INTERPRET, "0") not in ("", "0")
    if is_interpreting and context.invoked_subcommand in _COMPILING:
        # Before Triton is imported: it decides then, for its own functions too.
        del os.environ[_INTERPRET]
        typer.echo(
            f"asmtune: {_INTERPRET} is left out: this command reads compiled code, which the "
            "interpreter has none of",
            err=True,
        )


app.command("prune-report")(prune_report.prune_report)
app.command("explain")(explain.explain)
app.command("roofline")(roofline.roofline)
app.command("retarget")(retarget.retarget)
app.command("tune")(tune.tune)
app.command("run", context_settings=programs.CONTEXT)(programs.run)
app.command("bench")(bench.bench)
app.command("check")(check.check)
app.command("runs")(listing.runs)
app.command("replay")(replay.replay)
app.command("collect")(collect.collect)
app.command("train")(train.train)
app.command("features")(listing.features)
app.command("rules")(listing.rules)
app.command("kernels")(listing.kernels)
app.add_typer(targets.app, name="targets", help="List, show and measure devices.")
app.add_typer(cache.app, name="cache", help="Look at, move and clear tuned configs.")
# A list of commands shows each one's first paragraph, which is cut unless it is given as a summary.
for _info in (
    *app.registered_commands,
    *cache.app.registered_commands,
    *targets.app.registered_commands,
):
    _info.short_help = " ".join((_info.callback.__doc__ or "").split("\n\n")[0].split())

# typer has its own copy of click since 0.20 or so; the base of its usage
# errors is reached in the same way in both.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[2]

BAD_INPUT: Final = 2


def run(arguments: Sequence[str]) -> int | programs.UserProgram:
    """Runs one command; returns its exit code, or the program that is to run.

    A program runs where no command's errors are caught: all that it raises is its own.
    """
    try:
        code = app(list(arguments), prog_name="asmtune", standalone_mode=False)
    except AsmtuneError as error:
        return _fail(str(error))
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]  # noqa: T201
            return BAD_INPUT
        return _fail(error.format_message())  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        print("asmtune: interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    return code if isinstance(code, int | programs.UserProgram) else 0


def _fail(message: str) -> int:
    line = " ".join(message.split())
    print_line(f"asmtune: {line}", err=True)
    return BAD_INPUT
