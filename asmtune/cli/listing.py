"""`asmtune targets`, `features`, `rules`, `kernels`: lists of what asmtune knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from asmtune.cli.output import write_result
from asmtune.report.tables import mapping_table

Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def targets(json_: Json = False) -> None:
    """List the devices that asmtune knows."""
    from asmtune.core.hardware.shipped import load_target, target_names

    rows = []
    for target in map(load_target, target_names()):
        rows.append(
            {
                "target": target.name,
                "arch": target.arch,
                "SMs": target.sms,
                "shared KiB a program": target.shared_bytes_per_block // 1024,
                "DRAM TB/s": round(target.dram_bytes_per_s / 1e12, 2),
                "bf16 TFLOP/s": round(target.flops_per_s("bf16") / 1e12),
            }
        )
    _show("Targets; a JSON file of the same form is taken by its path", rows, json_)


def features(json_: Json = False) -> None:
    """List the features that are read off a compiled config."""
    from asmtune.predict.features.catalog import FEATURES

    rows = [
        {"feature": f.name, "unit": f.unit, "group": f.group, "meaning": f.meaning}
        for f in FEATURES.values()
    ]
    _show("Features", rows, json_)


def rules(json_: Json = False) -> None:
    """List the rules, and which of them drop a config."""
    from asmtune.predict.score.rules import RULES

    rows = [
        {
            "rule": rule.name,
            "needs": rule.moment,
            "drops": "yes" if rule.hard else "no",
            "meaning": rule.meaning,
        }
        for rule in RULES
    ]
    _show("Rules", rows, json_)


def kernels(json_: Json = False) -> None:
    """List the kernels that come with asmtune."""
    from asmtune.core.kernel_module import kernel_names, load_kernel_module

    rows = []
    for module in map(load_kernel_module, kernel_names()):
        shape = ",".join(f"{name}={value}" for name, value in module.shapes[0].items())
        dtypes = " ".join(module.dtypes)
        rows.append({"kernel": module.name, "dtypes": dtypes, "shape": shape})
    _show("Kernels; a file of the same form is taken by its path", rows, json_)


def _show(title: str, rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    write_result(json.dumps(rows, indent=1) if as_json else mapping_table(title, rows))
