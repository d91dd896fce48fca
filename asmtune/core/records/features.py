"""Numbers read off one compiled config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


class Features(Mapping[str, float]):
    """Numbers read off one compiled config, by registered feature name."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Features({len(self)} values)"

    def to_pandas(self) -> pd.Series[float]:
        """Returns a series by feature name; `asmtune features` explains the names.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        from asmtune.base.pandas_frames import series

        return series(self._values, "value")

    def _repr_html_(self) -> str:
        from asmtune.core.records.display import features_html

        return features_html(self)
