"""Values as the page holds them: JSON, deflated, in base64, which needs no escaping in HTML."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any


def packed(value: Any) -> str:
    """A JSON value as text for `unpack` in data.js."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Lone surrogates, which a name may hold, are no UTF-8.
    data = text.encode("utf-8", "replace")
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def unpacked(text: str) -> Any:
    """The value again."""
    return json.loads(zlib.decompress(base64.b64decode(text)))
