"""`asmtune run`: an unchanged program, whose `triton.autotune` uses asmtune."""

from __future__ import annotations

import atexit
import builtins
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from asmtune.base.errors import InputError
from asmtune.cli.output import check_destinations, print_line, write_note
from asmtune.core.hardware.shipped import choose_target, load_target
from asmtune.core.keys.rules import BucketRule, BucketRules
from asmtune.report.cells import ReportTable, plain_table

if TYPE_CHECKING:
    from asmtune.runtime.events import KeyResolved
    from asmtune.runtime.recording.recorder import KeyList


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

_RUNNERS: Final = (__file__, "<frozen runpy>", runpy.__file__)

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def run(
    program: Annotated[str, typer.Argument(help="A Python file, or with -m a module.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own.")] = None,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module's dotted name.")] = False,
    effort: Annotated[
        str, typer.Option(help="How hard: quick, balanced, thorough or exhaustive.")
    ] = "balanced",
    on_miss: Annotated[
        str, typer.Option(help="For a new key: tune, predict, background or raise.")
    ] = "tune",
    small: Annotated[
        bool, typer.Option(help="Take the model's pick where a kernel is shorter than a launch.")
    ] = True,
    store: Annotated[
        str | None, typer.Option(help="Path or URL of the store; else the user's own.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Rank by this descriptor's file or name; else the GPU's own.")
    ] = None,
    bucket: Annotated[
        list[str],
        typer.Option(help="A rule for keys: pow2(M), or kernel_name:multiple(128, M); repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    buckets: Annotated[
        Path | None, typer.Option(help="A file of such rules, one a line; # begins a comment.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="A file that gets every key met, for `asmtune tune --from`."),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="A file of keys: those met that it lacks are listed.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No table at the end.")] = False,
) -> UserProgram:
    """Run a program whose triton.autotune uses asmtune, as Python would run it.

    The program needs no change. Its arguments, exit code and tracebacks are its own; at the
    end a table on stderr says what was tuned, if anything was launched. Processes that it
    forks use asmtune as well, those that it starts afresh do not: put `asmtune run` before
    their own command (torchrun --no-python asmtune run SCRIPT).
    """
    rules: list[str | BucketRule] = [*bucket, *(BucketRules.of(buckets).rules if buckets else ())]
    options = {
        "effort": effort,
        "on_miss": on_miss,
        "small": "auto" if small else None,
        "buckets": BucketRules.of(rules).rules,
    }
    lists = KeyFiles(record, keys)
    user_program = UserProgram(
        program, tuple(arguments or ()), module, options, store, quiet, target, lists
    )
    user_program.check()
    return user_program


@dataclass(frozen=True)
class KeyFiles:
    """The files of `--record` and `--keys`."""

    record: Path | None = None
    keys: Path | None = None

    def check(self, program: str) -> None:
        """Check that both can be used.

        Raises:
            InputError: one cannot be read or written, or holds keys of another program.
        """
        from asmtune.runtime.recording.key_file import check_program, read_key_file

        if self.record is not None:
            check_destinations([("--record", self.record)])
            check_program(self.record, program)
        if self.keys is not None:
            read_key_file(self.keys)

    def open(self, program: str, buckets: tuple[str, ...]) -> list[KeyList]:
        """Read them, for a program that is about to run."""
        if self.record is None and self.keys is None:
            return []
        from asmtune.runtime.recording.recorder import KeyList, KeyRecorder

        opened: list[KeyList] = []
        if self.record is not None:
            opened.append(KeyRecorder(self.record, program, buckets))
        if self.keys is not None:
            opened.append(KeyList.of(self.keys))
        return opened


@dataclass(frozen=True)
class UserProgram:
    """A program to run after the command line is done with, so that its errors are its own.

    Its name is a file's, or a module's with dots; the options are those of `patch`.
    """

    name: str
    arguments: tuple[str, ...]
    is_module: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    store: str | None = None
    quiet: bool = False
    target: str | None = None
    key_files: KeyFiles = field(default_factory=KeyFiles)

    @property
    def _own_name(self) -> str:
        """Return its name in a file of keys: the module's, or the script's without folders."""
        return self.name if self.is_module else Path(self.name).name

    def check(self) -> None:
        """Prepare `sys.path` as Python would.

        Raises:
            InputError: there is no such file or module, or an option has none of its values.
        """
        from asmtune.runtime.patching.redirect import check_options

        check_options(self.options)
        if not self.is_module and not Path(self.name).exists():
            raise InputError(f"{self.name}: no such file; for a module's name, give -m")
        if not self.is_module and Path(self.name).is_dir() and not _main_of(self.name).is_file():
            raise InputError(f"{self.name}: a folder without {_main_of(self.name).name}")
        if self.store is not None:
            self._check_store(self.store)
        if self.target is not None:
            load_target(self.target)
        self.key_files.check(self._own_name)
        if not sys.flags.safe_path:
            sys.path[0] = str(Path.cwd() if self.is_module else _folder(Path(self.name)))
        is_dotted = all(part.isidentifier() for part in self.name.split("."))
        if self.is_module and not (is_dotted and _is_found(self.name)):
            raise InputError(f"no module named {self.name}")

    @staticmethod
    def _check_store(where: str) -> None:
        from asmtune.store import transactions

        home = transactions.parse(where)
        if isinstance(home, Path) and home.is_dir():
            raise InputError(f"--store {where}: a folder; name the store's file, or a URL")

    def execute(self) -> None:
        """Run it under `patch`; what it raises, `SystemExit` included, goes on to Python."""
        from asmtune.runtime.events import listening, recording
        from asmtune.runtime.misses.early_start import end_early, start_early
        from asmtune.runtime.patching.redirect import patch

        if self.store is not None:
            os.environ["ASMTUNE_STORE_URL"] = self.store
        if self.target is not None:
            choose_target(load_target(self.target))
        if self.options.get("on_miss") in ("tune", "background"):
            start_early()
        sys.argv = [self.name, *self.arguments]
        met: list[KeyResolved] = []
        held = ExitStack()
        held.enter_context(listening(met.append))
        patching = patch(**self.options)
        patching.tell = lambda line: print_line(f"asmtune: {line}", err=True)
        held.enter_context(patching)
        lists = self.key_files.open(self._own_name, tuple(map(str, self.options["buckets"])))
        for one in lists:
            held.enter_context(recording(one.launched))
        # Not when the script ends: its threads may go on, and Python waits for them before this.
        atexit.register(self._end, held, met, lists, os.getpid())
        sys.excepthook = _without_runners(sys.excepthook)
        try:
            self._run()
        finally:
            end_early()

    def _run(self) -> None:
        path = Path(self.name)
        if self.is_module:
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        elif path.suffix == ".pyc" or path.is_dir() or zipfile.is_zipfile(path):
            runpy.run_path(self.name, run_name="__main__")
        else:
            _run_source(path.absolute())

    def _end(
        self, held: ExitStack, met: list[KeyResolved], lists: list[KeyList], process: int
    ) -> None:
        """Tell what was tuned; in a process that was forked off, nothing."""
        held.close()
        if os.getpid() != process:
            return
        if met and not self.quiet:
            write_note(keys_met_table(met))
        for one in lists:
            for line in one.summary(quiet=self.quiet):
                print_line(f"asmtune: {line}", err=True)


def _main_of(folder: str) -> Path:
    return Path(folder) / "__main__.py"


def _folder(path: Path) -> Path:
    """Return what Python puts first into `sys.path`: the folder of the script or `__main__.py`."""
    resolved = path.resolve()
    return resolved if resolved.is_dir() else resolved.parent


def _run_source(path: Path) -> None:
    """Run a script as `__main__`, which stays until Python ends.

    `runpy.run_path` would take it away while threads and `atexit` may still look there, and
    put the absolute path into `sys.argv`, where Python leaves it as it was given.
    """
    main = ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", str(path))
    vars(main).update(__file__=str(path), __loader__=loader, __builtins__=builtins)
    sys.modules["__main__"] = main
    with io.open_code(str(path)) as file:
        source = file.read()
    exec(compile(source, path, "exec"), vars(main))


def _is_found(name: str) -> bool:
    """Say if a module exists; import the packages that it lies in, as Python does."""
    parent = name.rpartition(".")[0]
    if parent and not _is_found(parent):
        return False
    return importlib.util.find_spec(name) is not None


def _without_runners(hook: _Hook) -> _Hook:
    """Return a hook for uncaught exceptions that begins with the program's own frames."""

    def shown(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        own = _own_frames(trace)
        if own is None and not isinstance(error, SyntaxError):
            own = trace  # it was not the program that failed
        hook(kind, error.with_traceback(own), own)

    return shown


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the frames below `UserProgram.execute`; all frames if it is not among them."""
    frame = trace
    while frame is not None and frame.tb_frame.f_code is not UserProgram.execute.__code__:
        frame = frame.tb_next
    if frame is None:
        return trace
    frame = frame.tb_next
    while frame is not None and frame.tb_frame.f_code.co_filename in _RUNNERS:
        frame = frame.tb_next
    return frame
