"""Predict the time of configs: features, scorers and the pruning funnel.

- `features` turns compiler output into numbers. An artifact (PTX, cubin) or a sketch (TTGIR)
  is read into a `Profile`; a profile and the work of a launch give `Features`. Both readers give
  the same features, so that one scorer ranks before and after compiling.
- `score` judges: rules drop configs that cannot run, scorers rank the rest, and a measured error
  says how many ranks are worth keeping.
- `small` tells by arithmetic whether a launch is too small to tune.
- `why` says why a config is slow: access patterns by line, and findings.
- `prune` is the funnel: it takes a space, compiles configs or sketches of them, and returns a
  report of the configs worth timing, with a reason for every dropped one.

    space --rules--> TTIR --rules--> sketch --score--> compile --features--> score --> report
            us         once a tile     a tenth of a      in parallel           us
                                       compile

A part of a large space is sketched, in rounds, and ranks the others.
A sketch drops a config only by what is exact in it (FLOPs and shared memory); its other numbers
are estimates. The default config is always compiled. Nothing here needs a GPU.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """The room, which bears the name of a public function and is called as it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call `asmtune.predict`."""
        home = importlib.import_module("asmtune.runtime.offline.prediction")
        return home.predict(*arguments, **options)


predict = sys.modules[__name__]
predict.__class__ = _Room
