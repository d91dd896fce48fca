"""The user's functions: hooks around every launch while a kernel is tuned, and `do_bench`.

The `pre_hook` of a `Config` is another one: it belongs to that config, and is called before the
tuner's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from asmtune.core.failures import required
from asmtune.triton_api.user_state import within

if TYPE_CHECKING:
    from asmtune.compile.load import LoadedLaunch

PreHook = Callable[..., Any]
"""Called as `pre_hook(kwargs)` before a launch, and once as `pre_hook(kwargs, reset_only=True)`."""

PostHook = Callable[..., Any]
"""Called as `post_hook(kwargs, exception=None)` after a launch, or with what it raised."""

DoBench = Callable[..., Any]
"""Called as `do_bench(kernel_call, quantiles=(0.5, 0.2, 0.8))`; gives milliseconds: the median,
p20 and p80, or the median alone."""

QUANTILES: Final = (0.5, 0.2, 0.8)


@dataclass(frozen=True)
class TunerHooks:
    """Holds the tuner's hooks, called with all arguments by name and the config's values.

    Attributes:
        pre: called before the launch; not timed.
        post: called after it, while the GPU may still run it; not timed.
    """

    pre: PreHook | None = None
    post: PostHook | None = None

    def reset(self, values: dict[str, Any]) -> None:
        """Call `pre` for the last time, after tuning; nothing is launched after it.

        Raises:
            ProblemError: the hook raised; says what.
        """
        pre = self.pre
        if pre is not None:
            required("pre_hook(reset_only=True)", lambda: within(pre)(values, reset_only=True))

    def around(self, launch: LoadedLaunch, values: dict[str, Any]) -> LoadedLaunch:
        """Wrap a launch, whose `prepare` runs the config's own hook, with the tuner's.

        These get `values`, the same mapping each time.
        """
        if self.pre is None and self.post is None:
            return launch
        pre, post = self.pre, self.post

        def prepare() -> None:
            launch.prepare()
            if pre is not None:
                within(pre)(values)

        def run() -> None:
            try:
                launch.run()
            except Exception as error:
                if post is not None:
                    within(post)(values, exception=error)
                raise

        def finish() -> None:
            launch.finish()
            if post is not None:
                within(post)(values, exception=None)

        return replace(launch, prepare=prepare, run=run, finish=finish)
