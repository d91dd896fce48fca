"""`asmtune.pruner` in Triton's own autotuner: what it keeps, and that it never raises."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import asmtune
from asmtune.base.errors import InputError
from asmtune.runtime.offline.pruning import PrunerWarning
from tests.sample_kernels import scale

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=warps)
    for block in (64, 1024, 4096)
    for warps in (1, 4)
]
X = torch.empty(1 << 20, device="meta")


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A kernel under Triton's autotuner with a pruner; its artifacts are kept apart."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path))
    by = {"early_config_prune": asmtune.pruner(top_k=2, target="H200")}
    return triton.autotune(CONFIGS, key=["n"], prune_configs_by=by)(scale)


def pruned(kernel: Any, *args: Any, **keywords: Any) -> list[Any]:
    """Prune the configs as a launch does."""
    kernel.nargs = dict(zip(kernel.arg_names, args, strict=False))
    grid = lambda values: (triton.cdiv(1 << 20, values["BLOCK"]),)  # noqa: E731
    configs: list[Any] = kernel.prune_configs({"grid": grid, "warmup": False, **keywords})
    return configs


def test_the_best_are_kept(tuned: Any) -> None:
    """The program's own configs come back, as many as asked for, as the report ranks them."""
    kept = pruned(tuned, X, X, 1 << 20)
    assert len(kept) == 2
    assert all(any(one is config for config in CONFIGS) for one in kept)
    problem = asmtune.Problem(
        scale, {"x_ptr": X, "y_ptr": X, "n": 1 << 20}, lambda v: (-(-(1 << 20) // v["BLOCK"]),)
    )
    report = asmtune.prune_report(problem, CONFIGS, target="H200", keep=2)
    ranked = [v.config.to_dict() for v in report.verdicts if v.rank in (1, 2)]
    assert [asmtune.Config.of(one).to_dict() for one in kept] == ranked


def test_a_short_list_is_left_alone() -> None:
    """Where there are no more than are kept, nothing is compiled."""
    prune = asmtune.pruner(top_k=6)
    assert prune(CONFIGS, {}) == CONFIGS


@pytest.mark.parametrize("args", [(X,), (X, X, "no number")])
def test_a_launch_that_cannot_be_judged_keeps_all(tuned: Any, args: tuple[Any, ...]) -> None:
    """All configs are kept, with one warning for any number of launches."""
    with pytest.warns(PrunerWarning, match="keeps all 6 configs"):
        assert pruned(tuned, *args) == CONFIGS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pruned(tuned, *args) == CONFIGS


def test_elsewhere_it_keeps_all() -> None:
    """Called by something else than Triton's autotuner, or without a GPU, it keeps all."""
    with pytest.warns(PrunerWarning, match="not called by"):
        assert asmtune.pruner(top_k=1, target="H200")(CONFIGS, {"n": 4}) == CONFIGS


@pytest.mark.parametrize("options", [{"top_k": 0}, {"target": "H2000"}, {"scorer": "luck"}])
def test_options_are_checked_at_once(options: dict[str, Any]) -> None:
    """A wrong option is refused where the kernel is decorated."""
    with pytest.raises(InputError):
        asmtune.pruner(**options)
