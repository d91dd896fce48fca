"""The application: its commands, and what its errors look like."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from asmtune.base.errors import AsmtuneError, UnavailableError
from asmtune.base.fingerprint import version_of
from asmtune.base.settings import check_cache_folder
from asmtune.cli.output import print_line, write_result
from asmtune.cli.run import CONTEXT, UserProgram
from asmtune.triton_api.interpreter import INTERPRET, is_interpreting

COMMANDS: Final = {
    "Commands": {
        "prune-report": "asmtune.cli.prune_report.prune_report",
        "explain": "asmtune.cli.explain.explain",
        "tune": "asmtune.cli.tune.tune",
        "run": "asmtune.cli.run.run",
        "runs": "asmtune.workshop.runs.command.app",
        "cache": "asmtune.cli.cache.app",
        "export": "asmtune.workshop.exports.command.export",
        "import": "asmtune.workshop.exports.command.import_configs",
        "targets": "asmtune.cli.targets.app",
    },
    "Workshop, for authors and servers of kernels": {
        "new": "asmtune.workshop.kernel_checks.new_kernel.new",
        "diagnose": "asmtune.workshop.kernel_checks.diagnose_command.diagnose",
        "bench": "asmtune.workshop.regression.bench_command.bench",
        "check": "asmtune.workshop.regression.check_command.check",
        "roofline": "asmtune.workshop.roofline.command.roofline",
        "model": "asmtune.workshop.replay.command.app",
    },
}
"""Places of the commands by heading and name: functions, and applications of groups."""

EXAMPLES: Final = {
    "prune-report": (
        "prune-report softmax --target H200 --shape rows=8192,cols=4096",
        "prune-report mm.py:matmul --arg 'a=fp16[64,64]' --format html -o report.html",
    ),
    "explain": (
        "explain softmax --shape rows=8192,cols=4096 --alone --code ptx",
        "explain tiled_matmul --config BLOCK_M=128,num_warps=8",
    ),
    "tune": ("tune softmax --shape rows=8192,cols=4096", "tune --from keys.json --effort quick"),
    "run": ("run train.py --epochs 1", "run --record keys.json -m package.serve"),
    "runs": ("runs --kernel softmax -o runs.txt", "runs show 20250304-050601"),
    "runs show": ("runs show 20250304-050601", "runs show run.jsonl --format json"),
    "cache": ("cache ls", "cache verify --store server.sqlite"),
    "cache ls": ("cache ls --kernel softmax", "cache ls --format csv -o tuned.csv"),
    "cache show": ("cache show 1f2e3d", "cache show 1f2e3d --format json"),
    "cache verify": ("cache verify", "cache verify --store server.sqlite --format json"),
    "cache clear": ("cache clear --kernel softmax --yes", "cache clear --device 'NVIDIA H200'"),
    "export": ("export tuned.json", "export configs.py --format python --kernel softmax"),
    "import": ("import tuned.json", "import a.json b.json --store server.sqlite"),
    "targets": ("targets", "targets --format csv -o targets.csv"),
    "targets show": ("targets show H200", "targets show H200 --format json -o h200.json"),
    "new": ("new my_kernel", "new add_row"),
    "diagnose": ("diagnose mine.py", "diagnose mm.py:matmul --arg 'a=fp16[64,64]'"),
    "bench": ("bench -o run.json", "bench mm.py:matmul --arg 'a=fp16[64,64]' -o run.json"),
    "check": (
        "check run.json --baseline base.json",
        "check run.json --baseline base.json --format markdown -o comment.md",
    ),
    "roofline": ("roofline vector_add -o roofline.svg", "roofline softmax --format json"),
    "model": ("model features", "model replay timings.json --kernels kernels"),
    "model features": ("model features", "model features --format csv"),
    "model rules": ("model rules", "model rules --format json"),
    "model replay": (
        "model replay timings.json --kernels kernels",
        "model replay timings.json --kernels kernels --scorer learned --format json",
    ),
    "model collect": (
        "model collect softmax --output timings.json",
        "model collect mine.py --output timings.json.gz --seconds 600",
    ),
    "model rows": (
        "model rows timings.json --kernels kernels --output rows.npz",
        "model rows a.json b.json --kernels kernels --output rows.npz --sketches before.npz",
    ),
    "model train": (
        "model train rows.npz --output mine.npz",
        "model train rows.npz --without softmax --output unseen.npz",
    ),
}
"""Two command lines for each command's `--help`."""

_PLACES: Final = {name: place for part in COMMANDS.values() for name, place in part.items()}

_COMPILING: Final = ("prune-report", "explain", "roofline", "tune", "bench", "model", "diagnose")


class _Commands(TyperGroup):
    """Lists the commands under their headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        for heading, names in COMMANDS.items():
            rows = [
                (name, self.commands[name].get_short_help_str(formatter.width))
                for name in names
                if name in self.commands
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


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
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(before)
    for name, place in _PLACES.items():
        if command not in (None, name):
            continue
        module, _, attribute = place.rpartition(".")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, short_help=found.info.help, epilog=_examples(name))
            for info in found.registered_commands:
                own = info.name or getattr(info.callback, "__name__", "")
                _describe(info, f"{name} {own}")
        else:
            app.command(name, context_settings=CONTEXT if name == "run" else None)(found)
            _describe(app.registered_commands[-1], name)
    return app


def _describe(info: Any, name: str) -> None:
    """Give a command its summary and its examples.

    A list of commands shows each one's first paragraph, which is cut unless it is a summary.
    """
    info.short_help = " ".join((info.callback.__doc__ or "").split("\n\n")[0].split())
    info.epilog = _examples(name)


def _examples(name: str) -> str:
    lines = "\n".join(f"  asmtune {words}" for words in EXAMPLES[name])
    return f"\b\nExamples:\n{lines}"


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return application()


# typer has its own copy of click since 0.20 or so; the base of its usage
# errors is reached in the same way in both.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[2]

BAD_INPUT: Final = 2
UNAVAILABLE: Final = 3


def run(arguments: Sequence[str]) -> int | UserProgram:
    """Run one command; return its exit code, or the program that is to run.

    A program runs where no command's errors are caught: all that it raises is its own.
    """
    named = arguments[0] if arguments and arguments[0] in _PLACES else None
    try:
        # Not the group's own `main`, which has other exit codes for Ctrl-C and a closed pipe.
        command = get_command(application(named))
        with command.make_context("asmtune", list(arguments)) as context:
            ended = command.invoke(context)
    except AsmtuneError as error:
        code = UNAVAILABLE if isinstance(error, UnavailableError) else BAD_INPUT
        return _fail(str(error), code)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        message = f"{error.name} is not installed here; `pip install {error.name}` where it runs"
        return _fail(message, UNAVAILABLE)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]  # noqa: T201
            return BAD_INPUT
        return _fail(error.format_message())  # type: ignore[attr-defined]
    except typer.Exit as early:
        return int(early.exit_code)
    return ended if isinstance(ended, UserProgram) else 0


def _fail(message: str, code: int = BAD_INPUT) -> int:
    print_line(f"asmtune: {' '.join(message.split())}", err=True)
    return code
