"""`asmtune diagnose` of host functions on a real GPU: launches captured on its tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmtune.core.hardware.shipped import load_target
from asmtune.workshop.kernel_checks.diagnose import diagnose
from asmtune.workshop.kernel_checks.subjects import DiagnosisRequest
from tests.workshop.kernel_checks.test_testing_diagnose import HOSTS

LOOKS_UP = """
def doubled_as_compiled(x):
    y = torch.empty_like(x)
    made = doubled.warmup(x, y, x.numel(), BLOCK=64, grid=(1,))
    assert made.n_regs > 0
    made[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 64)
"""


@pytest.mark.parametrize(
    ("function", "values", "reference", "cause"),
    [
        ("sums", ("x=fp32[4096,1000]",), "exact", ""),
        ("in_two", ("x=fp32[4096,1000]", "columns=1000"), "exact_total", ""),
        ("twice", ("x=fp32[100000]",), "", "mask"),
        ("doubled_as_compiled", ("x=fp32[100000]",), "", "mask"),
        ("copy", ("x=fp16[4096,16]",), "", ""),
    ],
)
def test_host_functions_on_a_gpu(
    function: str, values: tuple[str, ...], reference: str, cause: str, tmp_path: Path
) -> None:
    """Faults are found at other sizes, by guards and by a reference, and right ones are right."""
    path = tmp_path / "hosts.py"
    path.write_text(HOSTS.replace(" and SMS == 132", "") + LOOKS_UP)
    request = DiagnosisRequest(
        kernel=f"{path}:{function}",
        values=values,
        device="cuda",
        only="added" if function == "in_two" else None,
        reference=f"{path}:{reference}" if reference else None,
    )
    found = diagnose(request, load_target("H200"))
    assert found.wrong == bool(cause), found.text()
    assert (found.cause.cause if found.cause else "") == cause, found.text()
