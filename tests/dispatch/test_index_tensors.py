"""Kernels that index tensors steer, tuned on the first launch: the launch's own values are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from asmtune.compile.load import Binary, LoadedLaunch
from asmtune.core import problem as problems
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from asmtune.tuning.request import TuningRequest, key_of
from tests import tuning_support as support
from tests.dispatch.host import Host, make_host
from tests.workload.workload_kernels import jagged

SPACE = Space({"BLOCK": (32, 128), "num_warps": (1, 4)})


class JaggedMachine(support.HostMachine):
    """Sums on the host."""

    def launch(
        self,
        binary: Binary,  # noqa: ARG002 - the protocol's
        values: Mapping[str, Any],
        pre_hook: Callable[..., Any] | None,  # noqa: ARG002
    ) -> LoadedLaunch:
        """Do what the kernel would do."""

        def run() -> None:
            ends = values["starts_ptr"].tolist()
            for row, (first, last) in enumerate(pairwise(ends)):
                values["y_ptr"][row] = values["x_ptr"][first:last].sum()

        return LoadedLaunch(lambda: None, run)


def usual_us(config: Config) -> float:
    """Wide blocks are faster."""
    return 1000.0 / config.kwargs["BLOCK"]


def request(lengths: list[int]) -> TuningRequest:
    """A launch on segments of these lengths."""
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    rows = len(lengths)
    arguments = {
        "x_ptr": torch.ones(int(starts[-1])),
        "starts_ptr": starts,
        "y_ptr": torch.zeros(rows),
    }
    problem = Problem(jagged, arguments, (rows,), {"rows": rows})
    return TuningRequest(problem, key_of(problem, support.DEVICE), SPACE)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host that sums segments."""
    monkeypatch.setattr(support, "HostMachine", lambda: JaggedMachine(us=usual_us))
    return make_host(tmp_path, monkeypatch)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tensors that are copied to the host for a prediction."""
    copied: list[Any] = []
    values_of = problems.values_of

    def noted(tensor: Any, source: str) -> Any:
        copied.append(tensor)
        return values_of(tensor, source)

    monkeypatch.setattr(problems, "values_of", noted)
    return copied


@pytest.mark.slow(seconds=3)
def test_a_launch_is_tuned_on_its_own_index_tensor(host: Host, copies: list[Any]) -> None:
    """It is copied once for the whole search, and no other tensor is; the run says so."""
    miss = request([100, 0, 3000, 40])
    choice = host.resolver(space=SPACE).resolve(miss)
    assert choice.config.kwargs["BLOCK"] == 128
    assert [tensor is miss.problem.arguments["starts_ptr"] for tensor in copies] == [True]
    (path,) = run_files(host.folder / "runs")
    said = "loops and branches that starts_ptr steers follow the launch's own tensor"
    assert said in read_trace(path).notes


def test_a_record_is_for_the_key_and_not_for_the_data(host: Host, copies: list[Any]) -> None:
    """Other lengths of the same shape take the stored config and read nothing."""
    resolver = host.resolver(space=SPACE)
    first = resolver.resolve(request([100, 0, 3000, 40]))
    copies.clear()
    other = request([7, 9000, 1, 1])
    assert other.key == request([100, 0, 3000, 40]).key
    assert resolver.resolve(other).config == first.config
    assert copies == []
