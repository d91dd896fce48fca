"""Records as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asmtune.core.config import Config


def to_json(record: Any) -> Any:
    """A record as JSON values; configs become flat mappings."""
    if isinstance(record, Config):
        return record.to_dict()
    if hasattr(record, "__dataclass_fields__"):
        return {name: to_json(getattr(record, name)) for name in record.__dataclass_fields__}
    if isinstance(record, Mapping):
        return {str(name): to_json(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    return record if isinstance(record, str | int | float | bool | None) else str(record)
