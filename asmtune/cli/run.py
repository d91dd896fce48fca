"""`asmtune run`: an unchanged program, whose `triton.autotune` uses asmtune."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from getopt import getopt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from asmtune.base.errors import InputError
from asmtune.cli.output import check_destinations
from asmtune.core.keys.buckets import BucketRules
from asmtune.report.cells import ReportTable, plain_table
from asmtune.triton_api.interpreter import INTERPRET, is_interpreting

if TYPE_CHECKING:
    from asmtune.runtime.events import KeyResolved


_HEADINGS: Final = ("kernel", "tuned", "compiled", "timed", "seconds", "from store", "picked")


def keys_met_table(met: Sequence[KeyResolved]) -> ReportTable:
    """Tabulate keys tuned, configs compiled and timed, and seconds, by kernel and in sum."""
    table = plain_table("asmtune: keys met", _HEADINGS)
    kernels: dict[str, list[KeyResolved]] = defaultdict(list)
    for one in met:
        kernels[one.kernel].append(one)
    for kernel, own in sorted(kernels.items()):
        table.add_row(kernel, *_cells(own))
    if len(kernels) > 1:
        table.add_row(f"{len(kernels)} kernels", *_cells(met))
    return table


def _cells(met: Sequence[KeyResolved]) -> tuple[str, ...]:
    tuned = sum(one.how == "tuned" for one in met)
    stored = sum(one.how == "known" for one in met)
    work = (sum(one.compiled for one in met), sum(one.timed for one in met))
    seconds = f"{sum(one.seconds for one in met):.1f}"
    return tuple(map(str, (tuned, *work, seconds, stored, len(met) - tuned - stored)))


# Options end where the program begins: what follows is the program's own.
CONTEXT: Final = {"allow_interspersed_args": False}

_PRELUDE: Final = Path(__file__).with_name("prelude")
"""The folder of a `sitecustomize`, which Python imports before the program."""


def run(
    program: Annotated[str, typer.Argument(help="A file, folder or archive; - is stdin.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own.")] = None,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module's dotted name.")] = False,
    code: Annotated[bool, typer.Option("-c", help="PROGRAM is Python code.")] = False,
    effort: Annotated[
        str, typer.Option(help="How hard: quick, balanced, thorough or exhaustive.")
    ] = "balanced",
    on_miss: Annotated[
        str, typer.Option(help="For a new key: tune, predict, background or raise.")
    ] = "tune",
    small: Annotated[
        bool, typer.Option(help="Tune nothing where a kernel is shorter than its launch.")
    ] = True,
    store: Annotated[
        str | None, typer.Option(help="Path or URL of the store; else the user's own.")
    ] = None,
    bucket: Annotated[
        list[str],
        typer.Option(help="A rule for keys: pow2(M), or kernel_name:multiple(128, M); repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    record: Annotated[
        Path | None,
        typer.Option(help="A file that gets every key met, for `asmtune tune --from`."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No table at the end.")] = False,
) -> UserProgram:
    """Run a program whose triton.autotune uses asmtune, as Python would run it.

    The program needs no change. Python runs it, and asmtune steps in when it imports Triton; at
    the end a table on stderr says what was tuned, if anything was launched. Processes that it
    forks use asmtune as well, those that it starts afresh do not: put `asmtune run` before
    their own command (torchrun --no-python asmtune run SCRIPT).
    """
    if module and code:
        raise InputError("-m and -c: PROGRAM is either a module's name or code; leave one out")
    rules = BucketRules.of(bucket).rules
    options: dict[str, Any] = {"effort": effort, "on_miss": on_miss, "buckets": rules}
    options |= {} if small else {"skip_tuning_below_us": None}
    switch = "-m" if module else "-c" if code else ""
    user_program = UserProgram(
        program, tuple(arguments or ()), switch, options, store, quiet, record
    )
    user_program.check()
    return user_program


@dataclass(frozen=True)
class UserProgram:
    """A program for Python to run in the place of this process, so that its errors are its own.

    Its name is what Python takes after the switch, which is "-m", "-c" or ""; the options are
    those of `patch`.
    """

    name: str
    arguments: tuple[str, ...]
    switch: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    store: str | None = None
    quiet: bool = False
    record: Path | None = None

    def check(self) -> None:
        """Check what is asmtune's own; of the program Python tells what it lacks.

        Raises:
            InputError: an option has none of its values, a file of keys cannot be used, kernels
                are interpreted while keys are to be recorded, or Python was started without `site`.
        """
        from asmtune.runtime.patching.redirect import check_options

        if sys.flags.no_site:
            raise InputError("Python's option -S keeps asmtune out of a program: leave it out")
        check_options(self.options)
        if self.store is not None:
            self._check_store(self.store)
        if self.record is not None:
            from asmtune.runtime.offline.recorded_keys import read_keys

            if is_interpreting():
                raise InputError(
                    f"--record: {INTERPRET} is set, and an interpreted launch has no key; unset it"
                )
            check_destinations([("--record", self.record)])
            if self.record.exists():
                read_keys(self.record)

    @staticmethod
    def _check_store(where: str) -> None:
        from asmtune.store import places

        home = places.parse(where)
        if isinstance(home, Path) and home.is_dir():
            raise InputError(f"--store {where}: a folder; name the store's file, or a URL")

    def execute(self) -> NoReturn:
        """Become the Python that runs the program, where `prelude` waits for Triton."""
        environment = {**os.environ, **self._instructions()}
        if self.store is not None:
            environment["ASMTUNE_STORE_URL"] = self.store
        path = [str(_PRELUDE.resolve())]
        if not sys.flags.ignore_environment:
            path += filter(None, [environment.get("PYTHONPATH")])
        for name in os.environ:
            is_ignored = sys.flags.ignore_environment and name.startswith("PYTHON")
            if is_ignored or name == "PYTHONPATH":
                environment[f"ASMTUNE_HIDDEN_{name}"] = environment.pop(name)
        environment["PYTHONPATH"] = os.pathsep.join(path)
        is_like_option = self.name.startswith("-") and self.name != "-"
        before_name = self.switch or ("--" if is_like_option else "")
        command = [*_interpreter_options(), *filter(None, [before_name]), self.name]
        os.execve(sys.executable, [sys.executable, *command, *self.arguments], environment)

    def _instructions(self) -> dict[str, str]:
        """Return variables for `prelude`: what `program.Program` reads, and if it always tells."""
        buckets = list(map(str, self.options["buckets"]))
        # The program may have left this folder when it imports Triton.
        record = None if self.record is None else str(self.record.absolute())
        options = {**self.options, "buckets": buckets}
        given = {"options": options, "quiet": self.quiet, "record": record}
        return {
            "ASMTUNE_RUN": json.dumps(given),
            "ASMTUNE_RUN_TELLS": "1" if buckets or record else "",
        }


def _interpreter_options() -> list[str]:
    """Return Python's own options, as this process was given them.

    `prelude` is found by the environment, which -E and -I leave out: the variables are hidden.
    """
    given, _ = getopt(sys.orig_argv[1:], "bBc:dEiIm:OPqRsuvW:xX:", ["check-hash-based-pycs="])
    instead = {"-E": (), "-I": ("-s", "-P"), "-c": (), "-m": (), "-x": ()}
    return [word for option in given for word in instead.get(option[0], filter(None, option))]
