"""Plants small faults in asmtune, one at a time, and says which of them the tests find.

    python -m tests.mutants [--count N] [--seed N] [--jobs N] [--slow] [--output FILE]

A fault is one change of one line of one function: a comparison, an operator, a condition or a
number becomes another. Rooms have equally many; functions and places are drawn by the seed. First
all tests run once, and each that enters one of the functions is noted. Then each fault is planted
in a copy of the package, and the tests of its function run until one fails, the shortest first. A
function that no test enters in its own process is met by the tests of its room's folder. A fault is
found where a test fails or hangs. `--slow` adds the slow tests. The exit status is always 0: a
survivor may be a fault that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "asmtune"
MOST_TESTS: Final = 80
"""Tests that meet a fault: the shortest of those that enter its function."""
LIMIT_S: Final = 300.0
MAP: Final = "ASMTUNE_MUTANTS_MAP"

COMPARISONS: Final = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
OPERATORS: Final = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "+",
    ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip
SWAPPED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A fault: where it lies, the line as it is, and as it becomes."""

    file: str
    function: str
    first_line: int  # of the function's code, decorators included
    line: int
    before: str
    after: str

    @property
    def room(self) -> str:
        """Return the room of the file."""
        return Path(self.file).parts[1]


def drawn(count: int, seed: int) -> list[Mutant]:
    """Draw faults, equally many from each room, each in another function."""
    rooms: dict[str, list[list[Mutant]]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                places = list(_places(node, path, source.splitlines()))
                if places:
                    rooms[places[0].room].append(places)
    chooser = random.Random(seed)
    for functions in rooms.values():
        chooser.shuffle(functions)
    found: list[Mutant] = []
    turn = 0
    while len(found) < count:
        left = [name for name in sorted(rooms) if turn < len(rooms[name])]
        if not left:
            break
        found += [chooser.choice(rooms[name][turn]) for name in left]
        turn += 1
    return found[:count]


def _places(function: Any, path: Path, lines: Sequence[str]) -> Iterator[Mutant]:
    """Yield the faults of one function; those of functions inside it are theirs."""
    first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
    inner = {
        id(deep)
        for node in ast.walk(function)
        if _is_left_out(node) and node is not function
        for deep in ast.walk(node)
    }
    body = [deep for node in function.body for deep in ast.walk(node) if id(deep) not in inner]
    for node in body:
        for start, stop, text in _changes(node, lines):
            line = lines[start[0] - 1]
            if start[0] != stop[0] or line[start[1] : stop[1]] == text:
                continue
            after = line[: start[1]] + text + line[stop[1] :]
            name = str(path.relative_to(ROOT))
            yield Mutant(name, function.name, first, start[0], line.strip(), after.strip())


def _is_left_out(node: ast.AST) -> bool:
    """Say if faults in it are another function's, or change no result."""
    if isinstance(node, ast.keyword):
        return node.arg in ("strict", "indent", "stacklevel")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Raise | ast.Assert)


Place = tuple[int, int]


def _changes(node: ast.AST, lines: Sequence[str]) -> Iterator[tuple[Place, Place, str]]:
    """Yield changes of a node: where its text begins and ends, and the new text."""

    def at(one: Any) -> tuple[Place, Place]:
        return (one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)

    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = at(node.left)[1], at(node.comparators[0])[0]
        yield left, right, f" {COMPARISONS[type(node.ops[0])]} "
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and _is_arithmetic(node):
        left, right = at(node.left)[1], at(node.right)[0]
        if not set(lines[left[0] - 1][left[1] : right[1]]) & set("()"):
            yield left, right, f" {OPERATORS[type(node.op)]} "
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        yield *at(node), str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        start, stop = at(node.test)
        yield start, stop, f"not ({lines[start[0] - 1][start[1] : stop[1]]})"
    elif isinstance(node, ast.Name) and node.id in SWAPPED:
        yield *at(node), SWAPPED[node.id]


def _is_arithmetic(node: ast.BinOp) -> bool:
    """Say if neither side is a text, whose change would only raise."""
    sides = (node.left, node.right)
    return not any(isinstance(one, ast.JoinedStr | ast.List | ast.Tuple) for one in sides) and all(
        not isinstance(one, ast.Constant) or isinstance(one.value, int | float) for one in sides
    )


# The map of tests: this module is a plugin of pytest in the run that makes it.


class Watcher:
    """Notes which functions each test enters in its own process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        wanted = json.loads((folder / "functions.json").read_text())
        self._wanted = {(file, line): f"{file}:{line}" for file, line in wanted}
        self._known: dict[int, tuple[Any, str | None]] = {}
        self._entered: set[str] = set()
        self.tests: dict[str, tuple[float, list[str]]] = {}

    def trace(self, frame: Any, _: str, __: Any) -> None:
        """Take a call; its lines are not traced."""
        code = frame.f_code
        known = self._known.get(id(code))
        if known is None:
            known = self._known[id(code)] = (code, self._name(code))
        if known[1] is not None:
            self._entered.add(known[1])

    def _name(self, code: Any) -> str | None:
        try:
            file = str(Path(code.co_filename).relative_to(ROOT))
        except ValueError:
            return None
        return self._wanted.get((file, code.co_firstlineno))

    def begin(self) -> None:
        """Forget the last test's functions, and watch again: tests may set tracers of their own."""
        import threading

        self._entered = set()
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def end(self, test: str, seconds: float) -> None:
        """Note a test that has passed."""
        if self._entered:
            self.tests[test] = (seconds, sorted(self._entered))

    def save(self) -> None:
        """Write the map of this process."""
        (self._folder / f"tests-{os.getpid()}.json").write_text(json.dumps(self.tests))


if folder := os.environ.get(MAP):
    import pytest

    watcher = Watcher(Path(folder))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item: Any) -> None:
        """Begin a test; what its fixtures enter counts."""
        watcher.begin()

    def pytest_runtest_logreport(report: Any) -> None:
        """End a test, in the process that ran it."""
        if report.when == "call" and report.passed and not hasattr(report, "node"):
            watcher.end(report.nodeid, report.duration)

    def pytest_sessionfinish(session: Any) -> None:
        """Keep what was seen."""
        sys.settrace(None)
        watcher.save()


def mapped(mutants: Sequence[Mutant], marks: str, jobs: int) -> dict[str, list[str]]:
    """Run the tests once; return those that enter each function, the shortest first."""
    with tempfile.TemporaryDirectory() as folder:
        functions = sorted({(one.file, one.first_line) for one in mutants})
        Path(folder, "functions.json").write_text(json.dumps(functions))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants", "-m", marks]
        command += ["-n", str(jobs), "--dist", "worksteal", "-p", "no:cacheprovider"]
        environment = {**os.environ, MAP: folder, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
        tests: dict[str, tuple[float, list[str]]] = {}
        for path in Path(folder).glob("tests-*.json"):
            tests |= json.loads(path.read_text())
    entering = defaultdict(list)
    for test, (_, names) in sorted(tests.items(), key=lambda item: item[1][0]):
        for name in names:
            entering[name].append(test)
    return entering


def met(mutant: Mutant, tests: Sequence[str], marks: str) -> str:
    """Plant a fault in a copy of the package, and return the test that finds it; "" for none."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repository"
        root.mkdir()
        for path in ROOT.iterdir():
            if path.name not in ("asmtune", ".git", ".venv", ".cache"):
                (root / path.name).symlink_to(path)
        shutil.copytree(PACKAGE, root / "asmtune", ignore=shutil.ignore_patterns("__pycache__"))
        # Tests find the package beside them: they may not be a link into the repository.
        (root / "tests").unlink()
        shutil.copytree(ROOT / "tests", root / "tests", symlinks=True)
        target = root / mutant.file
        lines = target.read_text().splitlines(keepends=True)
        old = lines[mutant.line - 1]
        lines[mutant.line - 1] = old.replace(mutant.before, mutant.after)
        target.write_text("".join(lines))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        command += ["--tb=no", "-m", marks, *tests]
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        environment.setdefault("ASMTUNE_TEST_CACHE", str(ROOT / ".cache" / "tests"))
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True,
                timeout=LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"hangs for {LIMIT_S:g} s"
    if done.returncode in (0, 5):
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0] if lines else f"exit status {done.returncode}"


def _tests_of(mutant: Mutant, entering: Mapping[str, Sequence[str]]) -> list[str]:
    tests = list(entering.get(f"{mutant.file}:{mutant.first_line}", ()))[:MOST_TESTS]
    if tests:
        return tests
    near = [path for path in (ROOT / "tests" / mutant.room,) if path.is_dir()]
    folders = near or [ROOT / "tests"]
    return [str(path.relative_to(ROOT)) for path in folders]


def main() -> None:
    """Plant the faults, and print which were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    marks = "not gpu" if options.slow else "not gpu and not slow"
    mutants = drawn(options.count, options.seed)
    entering = mapped(mutants, marks, options.jobs)

    def judged(mutant: Mutant) -> str:
        found = met(mutant, _tests_of(mutant, entering), marks)
        verdict = f"found by {found}" if found else "survived"
        place = f"{mutant.file}:{mutant.line} {mutant.function}"
        sys.stdout.write(f"{place}\n  - {mutant.before}\n  + {mutant.after}\n  {verdict}\n")
        sys.stdout.flush()
        return found

    with ThreadPoolExecutor(options.jobs) as threads:
        results = list(threads.map(judged, mutants))
    rooms = defaultdict(list)
    for mutant, found in zip(mutants, results, strict=True):
        rooms[mutant.room].append(bool(found))
    for name, outcomes in sorted(rooms.items()):
        sys.stdout.write(f"{name:24} {sum(outcomes)} of {len(outcomes)}\n")
    total = sum(map(bool, results))
    sys.stdout.write(f"{total} of {len(mutants)} found, {total / max(1, len(mutants)):.0%}\n")
    if options.output:
        rows = [asdict(m) | {"found": f} for m, f in zip(mutants, results, strict=True)]
        options.output.write_text(json.dumps({"seed": options.seed, "mutants": rows}, indent=1))


if __name__ == "__main__":
    main()
