"""Reports read back from the JSON that `report_json` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.json_checks import each_of, expected, names_of, parse_json, text_of
from asmtune.base.json_codec import Decoder, JsonCodec
from asmtune.core.config import Config
from asmtune.core.records.features import Features
from asmtune.core.records.pruned import PruneReport
from asmtune.report.documents import FORMAT, VERSION

_STAGES: Final = (None, "rules", "sketch", "compile", "score")


def read_reports(path: Path) -> list[PruneReport]:
    """Reads the reports of a file, one a target.

    Raises:
        InputError: it cannot be read, is no such file, is of a newer version, or a field is
            missing, unknown or wrong; names the file and the field.
    """
    try:
        document = parse_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise InputError(f"{path}: not whole JSON ({error}); write the report again") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(
            f"{path}: no report: expected the JSON of `asmtune prune-report --format json`"
        )
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise InputError(
            f"{path}: version {version!r}, and this asmtune reads 1 to {VERSION}: upgrade asmtune"
        )
    try:
        reports = each_of(document.get("reports"), "reports", _report)
    except InputError as error:
        raise InputError(f"{path}: {error}; write the report again") from error
    if not reports:
        raise InputError(f"{path}: it holds no report; write it again")
    return reports


def _report(value: Any, where: str) -> PruneReport:
    if isinstance(value, dict):
        value.pop("dropped", None)  # counts that `PruneReport.dropped` gives again
    return _CODEC.read(PruneReport, value, where)


def _of_kind(kind: Any, description: str) -> Decoder:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise expected(description, where, value)
        return value

    return check


def _features(value: Any, where: str) -> Features:
    return Features(_CODEC.read(dict[str, float], value, where))


def _config(value: Any, where: str) -> Config:
    return Config.from_dict(names_of(value, where))


def _check_stage(name: str, value: Any, where: str) -> None:
    if name == "dropped_at" and value not in _STAGES:
        raise expected("the stage of the funnel", where, value)


_CODEC: Final = JsonCodec(
    decoders={
        str: text_of,
        bool: _of_kind(bool, "true or false"),
        int: _of_kind(int, "a whole number"),
        float: _of_kind(int | float, "a number"),
        Features: _features,
        Config: _config,
    },
    check=_check_stage,
)
