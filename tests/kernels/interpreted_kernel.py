"""Run with TRITON_INTERPRET=1: the accuracy check of one kernel on the CPU, as JSON."""

from __future__ import annotations

import json
import sys

from tests.kernels.accuracy import case_of, differences, module_of


def main(name: str) -> None:
    """Every comparison by dtype."""
    case = case_of(name)
    found = {
        dtype: differences(name, dtype, "cpu")
        for dtype in module_of(name).DTYPES
        if dtype not in case.not_interpreted
    }
    if case.extra is not None:
        found["extra"] = case.extra("cpu")
    # JSON has no infinity.
    finite = {k: {what: min(x, 1e300) for what, x in v.items()} for k, v in found.items()}
    json.dump(finite, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
