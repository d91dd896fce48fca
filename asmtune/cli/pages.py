"""Reports as a page: the measured times and the code that stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.arguments import KernelArguments
from asmtune.core.hardware.shipped import load_target
from asmtune.core.records.pruned import PruneReport
from asmtune.report.explorer.code import CodeMaker, carried_code
from asmtune.report.explorer.page import report_html
from asmtune.report.explorer.timings import KernelTimings, LaunchKey, Timings, read_timings
from asmtune.report.progress import ProgressBar
from asmtune.studies.stored import tuned_of

STORE: Final = "store"
"""What `--timings` takes for the record that launches would find."""


def measured_times(
    given: str | None, subject: KernelArguments | Sequence[PruneReport], targets: Sequence[str]
) -> Timings | None:
    """What `--timings` names, held to what the report is of before anything is compiled.

    Args:
        given: as the command line has it; None where it was not given.
        subject: what reports will be made of, or reports that are there.
        targets: of the reports that will be made.

    Raises:
        InputError: it cannot be read, or is of none of the launches.
    """
    if given is None:
        return None
    if isinstance(subject, KernelArguments):
        if given == STORE:
            return _stored(subject, targets)
        launches = _launches(subject, targets)
    else:
        launches = [LaunchKey(r.kernel, r.shape, r.dtypes, r.target) for r in subject]
    timings = read_timings(given, Settings.from_environment().runs_dir)
    timings.check(launches)
    return timings


def _launches(arguments: KernelArguments, targets: Sequence[str]) -> list[LaunchKey]:
    problem, _ = arguments.load()
    names = [load_target(name).name for name in targets]
    return [LaunchKey(problem.name, problem.shape, problem.dtypes, name) for name in names]


def _stored(arguments: KernelArguments, targets: Sequence[str]) -> Timings:
    """The timings of the stored records that launches of the problem would find."""
    loaded, settings = arguments.load_all(), Settings.from_environment()
    problem, parts, missed = loaded.problem, [], []
    for name in targets:
        target = load_target(name)
        found = tuned_of(loaded, target, settings)
        if found.outcome == "hit" and found.record is not None:
            times = {str(m.config): m.median_us for m in found.record.measurements}
            dtypes = frozenset(problem.dtypes.values())
            parts.append(KernelTimings(problem.name, problem.shape, dtypes, target.name, times))
        else:
            missed.append(f"{target.name}: {found.outcome} {found.detail}".rstrip())
    if not parts:
        raise InputError(
            f"--timings store: no record of {problem.name} is for this ({'; '.join(missed)}): "
            "`asmtune tune` makes one"
        )
    return Timings("the store", tuple(parts))


def page_of(
    reports: Sequence[PruneReport],
    arguments: KernelArguments,
    targets: Sequence[str],
    timings: Timings | None,
) -> str:
    """The page of reports that were just made, with the code of their best configs."""
    problem, _ = arguments.load()
    machines = [load_target(name) for name in targets]
    with ProgressBar() as progress:
        maker = CodeMaker(machines, Settings.from_environment(), progress)
        code = carried_code(reports, problem, maker)
    return report_html(reports, code, timings)
