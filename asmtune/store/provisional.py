"""What a store holds besides records: timings of runs that have not ended, and predictions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.timings import Measurement
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store import codec, predictions, rows, tables
from asmtune.store import partial_runs as trials
from asmtune.store.lookup import (
    Prediction,
    Remembered,
    StoreWarning,
    Unfinished,
    differences,
    reusable,
)
from asmtune.store.opened import OpenStore


class ProvisionalStore(OpenStore):
    """Keeps what is known of a key before it has a record; a record takes its place."""

    def remember(
        self,
        key: TuneKey,
        provenance: Provenance,
        measurements: Iterable[Measurement] = (),
        failures: Iterable[tuple[Config, Failure]] = (),
    ) -> None:
        """Keeps outcomes of a run that has not ended; committed when this returns.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        formed = trials.form(key, provenance, measurements, failures)
        if formed:
            self.transact(lambda connection: trials.put(connection, formed), writes=True)

    def remembered(self, key: TuneKey, expected: Provenance) -> Remembered:
        """What earlier runs of a key found that holds for how it would be tuned now.

        Of runs that have not ended, with the same source and Triton (major.minor);
        and of the key's record, where its space alone differs. The newest outcome
        of a config counts. A damaged row is left out; it is deleted, with one
        `StoreWarning`, where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        identity = codec.key_digest(key)

        def read(connection: Connection) -> tuple[list[rows.Loaded], list[trials.Loaded]]:
            return (
                rows.load(connection, tables.keys.c.digest == identity),
                trials.load(connection, tables.trials.c.digest == identity),
            )

        records, loaded = self.transact(read)
        self._set_trials_aside([row for row in loaded if row.trial is None])
        earlier: list[trials.Outcome] = []
        for record in (row.record for row in records if row.record is not None):
            made = record.provenance
            if reusable(made.source, made.triton, expected) and made.space != expected.space:
                earlier += [*record.measurements, *record.failures]
        later = (row.trial for row in loaded if row.trial is not None)
        return trials.merged(earlier, later, expected)

    def unfinished(self, kernel: str | None = None, device: str | None = None) -> list[Unfinished]:
        """Runs that have not ended or were cut off, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = trials.matching(kernel, device)
        loaded = self.transact(lambda connection: trials.load(connection, condition))
        return trials.unfinished(row.trial for row in loaded if row.trial is not None)

    def predict(self, prediction: Prediction) -> None:
        """Keeps what the model chose for a key, unless it was tuned and that holds.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        row = predictions.form(prediction)

        def write(connection: Connection) -> None:
            if rows.standing(connection, prediction.key, prediction.provenance) is None:
                predictions.put(connection, row)

        self.transact(write, writes=True)

    def predicted(self, key: TuneKey, expected: Provenance) -> Prediction | None:
        """What the model chose for a key, where that holds; a damaged row is none.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = tables.predictions.c.digest == codec.key_digest(key)
        for found in self.transact(lambda connection: predictions.load(connection, condition)):
            if isinstance(found, Prediction) and not differences(found.provenance, expected):
                return found
        return None

    def predictions(self, kernel: str | None = None, device: str | None = None) -> list[Prediction]:
        """All that the model chose and nobody has tuned since, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = predictions.matching(kernel, device)
        loaded = self.transact(lambda connection: predictions.load(connection, condition))
        return [found for found in loaded if isinstance(found, Prediction)]

    def _set_trials_aside(self, damaged: Sequence[trials.Loaded]) -> None:
        if not damaged or self._database.access.on_corrupt == "error":
            return
        ids = [row.id for row in damaged]
        self.transact(lambda connection: trials.drop_ids(connection, ids), writes=True)
        warnings.warn(
            f"store {self.place}: {len(ids)} remembered timings of {damaged[0].place} were damaged "
            f"({damaged[0].problem}) and have been deleted; they will be taken again",
            StoreWarning,
            stacklevel=3,
        )
