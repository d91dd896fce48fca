"""Diagnoses whose trials run in the process with Triton's interpreter that tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asmtune.core.hardware.model import Target
from asmtune.workshop.kernel_checks.diagnose import diagnose
from asmtune.workshop.kernel_checks.reports import Diagnosis
from asmtune.workshop.kernel_checks.subjects import DiagnosisRequest
from tests.interpreter import Interpreter


@pytest.fixture
def found_in(
    monkeypatch: pytest.MonkeyPatch, interpreter: Interpreter, target: Target
) -> Callable[..., Diagnosis]:
    """Diagnose with trials in the tests' own process with an interpreter."""

    class Shared:
        def __init__(self, *_: Any) -> None:
            self._answer: dict[str, Any] = {}

        def send(self, message: dict[str, Any]) -> None:
            self._answer = interpreter.call(
                "tests.workshop.kernel_checks.interpreted:answer", message
            )

        def receive(self, _: float) -> dict[str, Any]:
            return self._answer

        def kill(self) -> None:
            pass

    monkeypatch.setattr("asmtune.workshop.kernel_checks.subjects.Child", Shared)
    return lambda kernel, **more: diagnose(
        DiagnosisRequest(kernel=kernel, device="cpu", **more), target
    )
