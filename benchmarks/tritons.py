"""Try each Triton that a PyTorch asks for: contracts, tests without a GPU, and a report.

    python -m benchmarks.tritons [--tritons 3.8.0] [--rooms]

`make test-tritons` runs it. Each Triton gets an environment in `.cache/tritons`, which shares all
other packages with this one: its own Triton comes first on the path. PyTorch stays the CPU build.
A function of `asmtune.triton_api` has the result of the tests that name it. `--rooms` runs the
rooms that meet Triton alone, in two minutes for each in the place of eight. Results of other
Tritons in the file are kept.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from benchmarks import harness

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".cache" / "tritons"
TRITONS: Final = {
    "3.6.0": "2.11",
    "3.7.1": "2.12, 2.13",
    "3.8.0": "2.14",
    "3.9.0": "2.15",
}
"""Versions that are tried, and the PyTorch that asks for each."""

ROOMS: Final = {
    "contracts": ("triton_api",),
    "readers": ("asm", "workload"),
    "features": ("features",),
    "compile": ("compile",),
    "launcher": ("launch",),
}
"""Folders of tests that meet Triton; the rest of the suite is run with them."""

REPORT: Final = (
    *("prune-report", "tiled_matmul", "--target", "H200", "--shape", "M=4096,N=4096,K=4096"),
    *("--format", "json"),
)


def main() -> None:
    """Try the versions; write what each gave."""
    parser = harness.parser(__doc__, "tritons.json")
    parser.add_argument("--tritons", nargs="*", default=[*TRITONS], help="versions to try")
    parser.add_argument("--rooms", action="store_true", help="only the rooms that meet Triton")
    args = parser.parse_args()
    found = json.loads(args.output.read_text())["tritons"] if args.output.is_file() else {}
    # Written at the end: a test holds README to the file.
    found |= {version: tried(version, args) for version in args.tritons}
    kept = {one: found[one] for one in sorted(found)}
    print(document(harness.write(args.output, {"tritons": kept})))


def tried(version: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run the tests and a report under a Triton."""
    python = environment(version)
    kept = FOLDER / f"tests-{version}"
    own = {**os.environ, "ASMTUNE_TEST_CACHE": str(kept), "OMP_NUM_THREADS": "1"}
    folders = [folder for room in ROOMS.values() for folder in room] if args.rooms else [""]
    results = kept.with_suffix(".xml")
    # Python 3.11 cannot always parse the source of a failed test for its traceback: `native`.
    words = ("--tb=native", "-q", "-m", "not slow", "-n", str(min(os.cpu_count() or 1, 8)))
    command = [python, "-m", "pytest", *words, "--dist", "worksteal", f"--junitxml={results}"]
    paths = [f"tests/{folder}".rstrip("/") for folder in folders]
    subprocess.run([*map(str, command), *paths], cwd=ROOT, env=own, check=False)
    cases = [*read_cases(results)]
    made = subprocess.run(
        [str(python), "-m", "asmtune", *REPORT], env=own, capture_output=True, text=True, check=True
    )
    origin = harness.provenance()
    return {
        "torch": origin["torch"],
        "date": origin["date"],
        "contracts": contracts(cases),
        "rooms": {room: counts(c for c in cases if c[0] in names) for room, names in ROOMS.items()},
        "suite": None if args.rooms else counts(iter(cases)),
        "skipped": dict(Counter(text for *_, how, text in cases if how == "skipped").most_common()),
        "failed": {f"{place}: {name}": text for place, name, how, text in cases if how == "failed"},
        "report": first_of(json.loads(made.stdout)["reports"][0]),
    }


def environment(version: str) -> Path:
    """Make the environment of a Triton where it is missing; return its Python."""
    folder, own = FOLDER / version, Path(sysconfig.get_paths()["purelib"])
    python = folder / "bin" / "python"
    if (folder / "made").exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "-q"]
    subprocess.run([*install, f"triton=={version}"], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(f"import site; site.addsitedir({str(own)!r})\n")
    script = (Path(sys.executable).parent / "asmtune").read_text().partition("\n")[2]
    (folder / "bin" / "asmtune").write_text(f"#!{python}\n{script}")
    (folder / "bin" / "asmtune").chmod(0o755)
    (folder / "made").touch()
    return python


Case = tuple[str, str, str, str]
"""A test's folder, its name, how it ended and why."""


def read_cases(path: Path) -> Iterator[Case]:
    """Read the ends of tests off pytest's report in JUnit's format."""
    for case in ElementTree.parse(path).iter("testcase"):
        place = case.get("classname", "").split(".")
        folder = place[1] if len(place) > 2 else ""
        ends = {part.tag: part.get("message") or "" for part in case}
        how = next((h for h in ("skipped", "failure", "error") if h in ends), "passed")
        text = ends.get(how, "").replace(f"{ROOT.parent}/", "").strip().splitlines()[:1]
        how = "failed" if how in ("failure", "error") else how
        yield folder, case.get("name", ""), how, text[0][:200] if text else ""


def counts(cases: Iterator[Case]) -> dict[str, int]:
    """Count tests by how they ended."""
    found = Counter(how for _, _, how, _ in cases)
    return {how: found[how] for how in ("passed", "skipped", "failed")}


def contracts(cases: list[Case]) -> dict[str, str]:
    """Say of each public function of `triton_api` "pass", or which of its tests fails and why."""
    failed: dict[str, str] = {}
    for folder, name, how, text in cases:
        if folder == "triton_api" and how == "failed":
            failed[name.partition("[")[0]] = text
    tests = dict(sources())
    found = {}
    for function in functions():
        own = [f"{n}: {failed[n]}" for n, text in tests.items() if function in text and n in failed]
        found[function] = "; ".join(own) or "pass"
    return found


def functions() -> list[str]:
    """List the public functions of `triton_api`, as its test of contracts does."""
    files = sorted((ROOT / "asmtune" / "triton_api").glob("*.py"))
    nodes = (node for path in files for node in ast.parse(path.read_text()).body)
    names = (node.name for node in nodes if isinstance(node, ast.FunctionDef))
    return [name for name in names if not name.startswith("_")]


def sources() -> Iterator[tuple[str, str]]:
    """Yield each contract test's name, with its source and that of helpers that it names."""
    parts: dict[str, str] = {}
    for path in sorted((ROOT / "tests" / "triton_api").glob("*.py")):
        text = path.read_text()
        functions = (one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef))
        parts |= {one.name: ast.get_source_segment(text, one) or "" for one in functions}
    for name, own in parts.items():
        if name.startswith("test_"):
            helpers = (t for n, t in parts.items() if not n.startswith("test_") and n in own)
            yield name, "\n".join([own, *helpers])


def first_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the best config of a report, and how many it keeps."""
    kept = [one for one in report["verdicts"] if one["kept"]]
    best = min(kept, key=lambda one: one["rank"])
    return {"kept": len(kept), "best": best["config"], "predicted_us": best["predicted_us"]}


def document(data: Mapping[str, Any]) -> str:
    """Write the table of versions."""
    rows = []
    for version, one in data["tritons"].items():
        held = sum(text == "pass" for text in one["contracts"].values())
        ends = [one["suite"]] if one["suite"] else one["rooms"].values()
        sums = (sum(end[how] for end in ends) for how in ("passed", "skipped", "failed"))
        tests = " / ".join(f"{count:,}" for count in sums)
        tests += "" if one["suite"] else ", of the rooms that meet Triton"
        contract = f"{held} of {len(one['contracts'])}"
        asks = TRITONS.get(version, "")
        rows.append([version, asks, one["torch"], contract, tests, one["date"][:10]])
    heads = ("Triton", "PyTorch that asks for it", "tried with", "contracts kept")
    return harness.table((*heads, "tests: passed / skipped / failed", "date"), rows)


if __name__ == "__main__":
    main()
