"""An accuracy run: variants of a kernel on the same inputs, each against its reference.

Its table and its JSON are made here as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import versions
from asmtune.base.json_codec import to_json
from asmtune.core.failures import required
from asmtune.measure.accuracy import AccuracyStats, measure_accuracy
from asmtune.report.cells import ReportTable, one_line, plain_table, words
from asmtune.report.documents import document_text
from asmtune.runtime.options import deterministic
from asmtune.triton_api.interpreter import exact_floats, is_interpreting
from asmtune.workshop.regression.accuracy_subject import (
    AccuracySubject,
    Outputs,
    Variant,
    accepted,
    function_of,
    variant_of,
)
from asmtune.workshop.regression.compare import environment_here
from asmtune.workshop.regression.run import Environment

WIDER: Final = ("fp64", "fp32")


@dataclass(frozen=True)
class AccuracyRow:
    """The errors of one output of one variant.

    Attributes:
        variant: its name.
        output: its name where there are several; else "".
        dtype: of the inputs.
    """

    variant: str
    output: str
    dtype: str
    stats: AccuracyStats

    @property
    def name(self) -> str:
        """Return the variant's name, with the output's if it has one."""
        return f"{self.variant} {self.output}".strip()


@dataclass(frozen=True)
class AccuracyRun:
    """An accuracy run.

    Attributes:
        date: when it ended, ISO 8601, UTC.
        environment: device and versions; without a GPU, the device says what took its place.
        kernel: name of the kernel or function.
        shape: sizes.
        dtype: of the inputs, if a variant names no other.
        against: the reference.
        seed: of the random numbers.
        rows: one a variant and output.
    """

    date: str
    environment: Environment
    kernel: str
    shape: Mapping[str, Any]
    dtype: str
    against: str
    seed: int
    rows: tuple[AccuracyRow, ...]


@dataclass(frozen=True)
class AccuracyRequest:
    """Request to measure a kernel's errors.

    Attributes:
        variants: by name; the first one alone if only the subject itself is measured.
        against: "fp64", "fp32", a variant's name, or `file.py:function`, which is called with
            the same inputs.
    """

    subject: AccuracySubject
    variants: tuple[Variant, ...]
    against: str

    @classmethod
    def of(
        cls, subject: AccuracySubject, variants: Mapping[str, Any], against: str
    ) -> AccuracyRequest:
        """Check what is asked for, before anything runs.

        Raises:
            InputError: a variant or the reference is unknown.
        """
        if subject.name in variants:
            raise InputError(f"--variant {subject.name}: the kernel itself has this name")
        made = {subject.name: Variant(subject.name, subject.function)}
        made |= {name: variant_of(subject, name, spec) for name, spec in variants.items()}
        if against not in (*WIDER, *made) and ":" not in against:
            known = ", ".join((*WIDER, *made))
            raise InputError(f"--against {against!r}: one of {known}, or file.py:function")
        return cls(subject, tuple(made.values()), against)

    def run(self, device: str, seed: int) -> AccuracyRun:
        """Measure all variants on a device, "cuda" or "cpu"; the seed is that of the inputs.

        Raises:
            InputError: a kernel or reference raises, or their outputs do not fit each other.
        """
        import torch

        devices = [torch.cuda.current_device()] if device == "cuda" else []
        with deterministic(), exact_floats(), torch.random.fork_rng(devices):
            rows = [row for variant in self.variants for row in self._rows(variant, device, seed)]
        return AccuracyRun(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=environment_of(device),
            kernel=self.subject.name,
            shape=self.subject.shape,
            dtype=self.subject.dtype,
            against=self.against,
            seed=seed,
            rows=tuple(rows),
        )

    def _rows(self, variant: Variant, device: str, seed: int) -> list[AccuracyRow]:
        dtype = variant.dtype or self.subject.dtype
        where = f"{self.subject.name}, variant {variant.name}"
        # The reference comes first, and on inputs of its own: a kernel may write to its inputs.
        wanted = self._reference(variant, device, seed)
        found = self.subject.outputs(variant, self._inputs(variant, device, seed))
        wanted = _by_names(where, found, wanted)
        rows = []
        for name, output in found.items():
            measure = partial(measure_accuracy, output, wanted[name])
            label = name if len(found) > 1 else ""
            about = f"{where} {label}".strip()
            try:
                errors = required("accuracy", measure)
            except InputError as error:
                raise InputError(f"{about}: {error}") from error
            if math.isnan(errors.p99):
                raise InputError(f"{about}: output and reference have no finite number to compare")
            rows.append(AccuracyRow(variant.name, label, dtype, errors))
        return rows

    def _inputs(self, variant: Variant, device: str, seed: int) -> dict[str, Any]:
        import torch

        torch.manual_seed(seed)
        dtype = variant.dtype or self.subject.dtype
        return self.subject.inputs(dtype, device)

    def _reference(self, variant: Variant, device: str, seed: int) -> Outputs:
        """Compute what a variant is compared with; another variant has inputs of its own dtype."""
        other = {other.name: other for other in self.variants}.get(self.against)
        inputs = self._inputs(other or variant, device, seed)
        if self.against in WIDER:
            return self.subject.reference(variant, inputs, self.against)
        if other is None:
            function = function_of(self.against)[1]
            other = Variant(self.against, function, accepted(function, variant.keywords))
        return self.subject.outputs(other, inputs)


def _by_names(where: str, found: Outputs, wanted: Outputs) -> Outputs:
    """Return a reference's outputs under the names of a variant's.

    Where one of the two gives no names of its own, the order says which belong together.
    """
    if found.keys() == wanted.keys():
        return wanted
    if len(found) != len(wanted):
        raise InputError(f"{where}: {len(found)} outputs, and the reference has {len(wanted)}")
    if not any(all(name.isdecimal() or not name for name in side) for side in (found, wanted)):
        raise InputError(
            f"{where}: outputs {', '.join(found)}, and those of the reference are "
            f"{', '.join(wanted)}: give both the same names"
        )
    return dict(zip(found, wanted.values(), strict=True))


def environment_of(device: str) -> Environment:
    """Describe the GPU, or the CPU in its place."""
    if device == "cuda":
        return environment_here()
    name = "CPU, Triton's interpreter" if is_interpreting() else "CPU"
    return Environment(gpu=name, board="", driver="", versions=versions())


FORMAT: Final = "asmtune-accuracy"

_NAMES: Final = {"p999": "p99.9", "cosine": "1 - cosine", "nonfinite": "NaN, inf"}
_LEFT_OUT: Final = ("p50", "amax", "max_abs")
"""Statistics that a narrow terminal does not show, the first of these first."""


def _heading(name: str) -> str:
    spelled = name.replace("rms", "RMS").replace("_", " ")
    return _NAMES.get(name, spelled)


_STATS: Final = tuple(
    sorted((f.name for f in fields(AccuracyStats)[1:]), key=lambda name: name == "nonfinite")
)
_COLUMNS: Final = ("variant", "dtype", *map(_heading, _STATS))


def _title(run: AccuracyRun) -> str:
    shape = f" {words(run.shape)}" if run.shape else ""
    about = f"against {one_line(run.against)}, seed {run.seed}"
    return f"{one_line(run.kernel)}{shape} {run.dtype} {about}"


def _cells(row: AccuracyRow) -> list[str]:
    values = {name: getattr(row.stats, name) for name in _STATS}
    values["cosine"] = max(0.0, 1.0 - values["cosine"])
    texts = [f"{value:.3g}" for value in values.values()]
    return [one_line(row.name), row.dtype, *texts]


def accuracy_table(run: AccuracyRun) -> ReportTable:
    """Tabulate the errors, a row a variant and output."""
    table = plain_table(_title(run), _COLUMNS, left=2, spare=[*map(_heading, _LEFT_OUT)])
    for row in run.rows:
        table.add_row(*_cells(row), style="red" if row.stats.nonfinite else None)
    return table


def accuracy_json(run: AccuracyRun) -> str:
    """Write the run as JSON, `{"format": "asmtune-accuracy", "version": 1, ...}`."""
    return document_text(FORMAT, to_json(run))
