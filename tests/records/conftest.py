"""A report of real compiles."""

from __future__ import annotations

import pytest

from asmtune.base.settings import Settings
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import PruneReport
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.keep import Keep
from asmtune.predict.score.scorers import make_scorer
from tests.sample_kernels import scale_problem


@pytest.fixture(scope="session")
def pruned(settings: Settings, target: Target) -> PruneReport:
    """Six configs of `scale` for an H200: two break a rule, two are kept, two rank behind."""
    space = Space({"BLOCK": (256, 512), "num_warps": (1, 2, 64)})
    funnel = Funnel(target, make_scorer("roofline"), settings, Keep.of("2"), caps=False)
    return funnel.prune(scale_problem(), space)
