"""The application: its commands, and what its errors look like."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from asmtune.base.errors import AsmtuneError
from asmtune.base.fingerprint import version_of
from asmtune.base.settings import check_cache_folder
from asmtune.cli.output import print_line, write_result
from asmtune.cli.run import CONTEXT, UserProgram
from asmtune.cli.streams import INTERRUPTED
from asmtune.triton_api.interpreter import INTERPRET, is_interpreting


class _Commands(TyperGroup):
    """Ends in `typer.Abort` at Ctrl-C, which typer would turn into an exit code of a command."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _abort_at_interrupt():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _abort_at_interrupt():
            return super().invoke(ctx)


@contextmanager
def _abort_at_interrupt() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise typer.Abort from interrupt


_COMMANDS: Final = {
    "prune-report": "asmtune.cli.prune_report.prune_report",
    "explain": "asmtune.cli.explain.explain",
    "roofline": "asmtune.workshop.roofline.command.roofline",
    "tune": "asmtune.cli.tune.tune",
    "run": "asmtune.cli.run.run",
    "bench": "asmtune.workshop.regression.bench_command.bench",
    "check": "asmtune.workshop.regression.check_command.check",
    "accuracy": "asmtune.workshop.regression.accuracy_command.accuracy",
    "diagnose": "asmtune.workshop.kernel_checks.diagnose_command.diagnose",
    "new": "asmtune.workshop.kernel_checks.new_command.new",
    "runs": "asmtune.cli.listing.runs",
    "export": "asmtune.workshop.exports.command.export",
    "import": "asmtune.workshop.exports.command.import_seeds",
    "replay": "asmtune.workshop.replay.replay_command.replay",
    "collect": "asmtune.workshop.replay.collect_command.collect",
    "train": "asmtune.workshop.replay.train_command.train",
    "features": "asmtune.cli.listing.features",
    "rules": "asmtune.cli.listing.rules",
    "kernels": "asmtune.cli.listing.kernels",
}
"""Modules and functions of the commands."""
_GROUPS: Final = {
    "targets": "List, show and measure devices.",
    "cache": "Look at, move and clear tuned configs.",
}
"""Summaries of the groups of commands: modules whose `app` has them."""

_COMPILING: Final = (
    "prune-report",
    "explain",
    "roofline",
    "tune",
    "bench",
    "replay",
    "collect",
    "diagnose",
)


def _show_version(value: bool) -> None:
    if value:
        write_result(f"asmtune {version_of('asmtune')}")
        raise typer.Exit


def before(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """An assembly-aware autotuner for Triton kernels."""
    check_cache_folder()
    if is_interpreting() and context.invoked_subcommand in _COMPILING:
        # Before Triton is imported: it decides then, for its own functions too.
        del os.environ[INTERPRET]
        typer.echo(
            f"asmtune: {INTERPRET} is left out: this command reads compiled code, which the "
            "interpreter has none of",
            err=True,
        )


def application(command: str | None = None) -> typer.Typer:
    """Make the application with one command or group, or with all of them.

    All of them import a second's worth of modules, of which most commands need few.
    """
    app = typer.Typer(
        name="asmtune",
        cls=_Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(before)
    registered = app.registered_commands
    for name, place in _COMMANDS.items():
        if command in (None, name):
            module, _, attribute = place.rpartition(".")
            function = getattr(import_module(module), attribute)
            app.command(name, context_settings=CONTEXT if name == "run" else None)(function)
    for name, summary in _GROUPS.items():
        if command in (None, name):
            group = import_module(f"asmtune.cli.{name}").app
            app.add_typer(group, name=name, help=summary)
            registered = [*registered, *group.registered_commands]
    # A list of commands shows each one's first paragraph, which is cut unless it is given as a
    # summary.
    for info in registered:
        info.short_help = " ".join((info.callback.__doc__ or "").split("\n\n")[0].split())
    return app


def application_for(arguments: Sequence[str]) -> typer.Typer:
    """Make the application that a command line needs, and so import its command."""
    named = arguments[0] if arguments and arguments[0] in {*_COMMANDS, *_GROUPS} else None
    return application(named)


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return application()


# typer has its own copy of click since 0.20 or so; the base of its usage
# errors is reached in the same way in both.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[2]

BAD_INPUT: Final = 2


def run(arguments: Sequence[str]) -> int | UserProgram:
    """Run one command; return its exit code, or the program that is to run.

    A program runs where no command's errors are caught: all that it raises is its own.
    """
    try:
        app = application_for(arguments)
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
    return code if isinstance(code, int | UserProgram) else 0


def _fail(message: str) -> int:
    line = " ".join(message.split())
    print_line(f"asmtune: {line}", err=True)
    return BAD_INPUT
