"""Fit the trees of `learned` by LightGBM (Ke et al., 2017), which is needed for this alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import version_of
from asmtune.predict.score.learned import Learned, number_name
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.trees import Trees
from asmtune.predict.score.vectors import NAMES, schema
from asmtune.workshop.replay.training_rows import SHIPPED, Examples, TaskRows

ROUNDS: Final = 300
_PARAMETERS: Final = {
    "learning_rate": 0.05,
    "min_data_in_leaf": 40,
    "lambda_l2": 1.0,
    "feature_fraction_bynode": 0.33,
    "extra_trees": True,
    "deterministic": True,
    "force_col_wise": True,
    "seed": 0,
    "verbosity": -1,
}
"""Thresholds are drawn, which steadies the ranking of unseen kernels."""

_RISING: Final = [int(name.startswith("us_") and name.endswith("over least")) for name in NAMES]
"""Columns with which no prediction falls: a unit that takes longer. This steadies them, too."""

MOST_SLOWDOWN: Final = 1.5
"""Logarithm of the slowdown beyond which all configs count as equally bad."""

SLOW_WEIGHT: Final = 1.5
"""Rate at which a row's weight falls with its slowdown: ranking the fastest right matters most."""


def fit(tasks: Sequence[TaskRows], jobs: int, about: Mapping[str, Any] | None = None) -> Trees:
    """Fit trees on tasks; the result does not depend on the number of jobs.

    Raises:
        InputError: LightGBM is not installed.
    """
    try:
        import lightgbm
    except ImportError as error:
        raise InputError(
            f"a model is fitted by LightGBM, which cannot be imported ({error}): "
            "pip install '.[train]' in a clone of asmtune"
        ) from error
    rows = np.concatenate([task.vectors for task in tasks])
    slowdown = np.concatenate([task.slowdown for task in tasks])
    weights = np.exp(-SLOW_WEIGHT * np.minimum(slowdown, 3.0))
    data = lightgbm.Dataset(rows, np.minimum(slowdown, MOST_SLOWDOWN), weight=weights)
    parameters: dict[str, Any] = {**_PARAMETERS, "num_threads": jobs}
    if rows.shape[1] == len(NAMES):  # an ablation has other columns
        parameters["monotone_constraints"] = _RISING
    booster = lightgbm.train(parameters, data, ROUNDS)
    return trees_of(booster.dump_model(), about or {})


def model_of(examples: Collection[Examples], jobs: int, without: Collection[str] = ()) -> Trees:
    """Fit the model of all rows but those of some kernels, with what must be known of it.

    Raises:
        InputError: LightGBM is not installed, or there are no rows left.
    """
    tasks = [task for part in examples for task in part.tasks if task.kernel not in without]
    if not tasks:
        raise InputError("there are no rows to fit a model on")
    date = datetime.now(UTC).date().isoformat()
    about = {
        "schema": schema(),
        "targets": list(dict.fromkeys(part.target for part in examples)),
        "dtypes": sorted({number_name(task.dtype) for task in tasks} - {""}),
        "kernels": sorted({task.kernel for task in tasks}),
        "rows": sum(len(task.slowdown) for task in tasks),
        "fitted": {"lightgbm": version_of("lightgbm"), "date": date},
    }
    return fit(tasks, jobs, about)


def unseen_scorer(scorer: Scorer, kernel: str, jobs: int) -> Scorer:
    """Return a scorer that was trained on no timing of a kernel.

    Raises:
        InputError: trees of one's own have seen it; or as `fit`.
    """
    if not isinstance(scorer, Learned) or kernel not in scorer.trained_kernels:
        return scorer.without_kernel(kernel)
    if scorer.name != Learned.name:
        raise InputError(
            f"--scorer {scorer.name}: its trees have seen {kernel}; fit them with "
            f"asmtune model train --without {kernel}"
        )
    examples = [Examples.load(path) for path in SHIPPED]
    return Learned(fitted=model_of(examples, jobs, without=[kernel]))


def trees_of(dumped: Mapping[str, Any], about: Mapping[str, Any]) -> Trees:
    """Take the trees of a LightGBM model, as `Booster.dump_model` gives it."""
    nodes: list[tuple[int, int, int, float, float]] = []
    roots = []
    for tree in dumped["tree_info"]:
        roots.append(len(nodes))
        nodes += _nodes(tree["tree_structure"], len(nodes))
    left, right, feature, threshold, value = (np.array(each) for each in zip(*nodes, strict=True))
    return Trees(
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        feature=feature.astype(np.int32),
        threshold=_rounded_down(threshold),
        value=value.astype(np.float32),
        roots=np.array(roots, dtype=np.int32),
        columns=int(dumped["max_feature_idx"]) + 1,
        about=about,
    )


def _nodes(root: Mapping[str, Any], start: int) -> Iterator[tuple[int, int, int, float, float]]:
    """Yield left, right, feature, threshold and value of a tree's nodes, parents first."""
    level, index, last = [root], start, start
    while level:
        following: list[Mapping[str, Any]] = []
        for node in level:
            if "leaf_value" in node:
                yield index, index, 0, 0.0, float(node["leaf_value"])
            else:
                yield last + 1, last + 2, int(node["split_feature"]), float(node["threshold"]), 0.0
                following += [node["left_child"], node["right_child"]]
                last += 2
            index += 1
        level = following


def _rounded_down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round thresholds so that a float32 compares as with the threshold itself."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
