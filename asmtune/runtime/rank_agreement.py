"""The same config of a key for all ranks of a `torch.distributed` job, whatever their stores hold.

Ranks that run different configs differ in their last bits, and the slowest sets the pace of all.
A collective could settle it, but not every rank launches every key. So each rank resolves a key as
it would alone, and publishes its config in the key-value store of the default process group, where
the first config of a key counts. No rank waits for another here: ranks that share a store wait for
its lease, as any processes do, and others tune at the same time, each on its own GPU. Only if the
group's store fails does a rank use its own config, with a warning.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from asmtune.base.errors import GroupStoreError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.json_codec import printable
from asmtune.base.text import shortened, user_stacklevel
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.core.space.space import Space
from asmtune.runtime.calls import RankJob, current_job
from asmtune.runtime.events import LAUNCHING_MODULES, key_text
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.options import is_deterministic

if TYPE_CHECKING:
    from asmtune.runtime.misses.resolver import Resolver
    from asmtune.tuning.request import TuningRequest

_T = TypeVar("_T")


def encode_config(config: Config) -> str:
    """Encode a config as text; configs that do the same have the same text."""
    return canonical(config.to_dict())


def decode_config(text: str, configs: Iterable[Config]) -> Config:
    """Decode a config; return the space's equal one, as `Space.matching` does.

    Raises:
        GroupStoreError: no config equals it, so that nobody knows what it would run.
    """
    try:
        told = Config.from_dict(dict(json.loads(text)))
    except (ValueError, TypeError, RecursionError) as error:
        raise GroupStoreError(f"it holds {shortened(printable(text))}, and no config") from error
    own = Space.from_configs(list(configs)).matching(told)
    if own is None:
        shown = shortened(printable(text), 200)
        raise GroupStoreError(f"it holds {shown}, which is not in the kernel's space")
    return own if told.alternative is None else own.with_alternative(told.alternative)


def _store_call(question: Callable[[], _T]) -> _T:
    """Call the store and return its answer.

    Raises:
        GroupStoreError: in the place of what PyTorch's stores raise for a server that is gone, for
            a timeout, and for what they do not do.
    """
    try:
        return question()
    except RuntimeError as error:
        raise GroupStoreError(str(error).partition("\n")[0]) from error


class RankWarning(UserWarning):
    """Ranks may run different configs: the group's store failed."""


@dataclass(frozen=True)
class RankAgreement:
    """The config that all ranks of a job use for one key.

    The kernel's source and the configs of `expected` count, and whether configs are chosen
    deterministically: what ranks agreed on before that may have been timed. `configs` gives the
    space's own, so that another rank's config gets its `pre_hook`.
    """

    job: RankJob
    key: TuneKey
    expected: Provenance
    configs: Callable[[], Iterable[Config]]
    deterministic: bool = field(default_factory=is_deterministic)

    def agree(self, resolve: Callable[[], Config]) -> Config:
        """Return the config that all ranks use; before there is one, `resolve` and publish one.

        Raises:
            AsmtuneError: `resolve` failed in this rank; another one may succeed.
        """
        try:
            if (text := self._announced()) is not None:
                return decode_config(text, self.configs())
        except GroupStoreError as error:
            return self._go_alone(error, resolve())
        config = resolve()
        try:
            text = encode_config(config)
            first = self._first(text)
            return config if first == text else decode_config(first, self.configs())
        except GroupStoreError as error:
            return self._go_alone(error, config)

    def _go_alone(self, error: GroupStoreError, config: Config) -> Config:
        text = (
            f"rank {self.job.rank}: {key_text(self.key)}: the default process group's store failed "
            f"({error}); this rank goes on with {config}, and others may have another config; tune "
            "it before the job"
        )
        warnings.warn(text, RankWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))
        return config

    @property
    def _entry(self) -> str:
        """Return the name of the key's entry in the group's store."""
        key, made = self.key, self.expected
        # Without versions: ranks with different builds of PyTorch are ranks of one job.
        identity = (key.kernel, canonical(dict(key.shape)), canonical(dict(key.dtypes)))
        mode = ("deterministic",) if self.deterministic else ()
        return f"asmtune/{digest(*identity, key.device, made.source, made.space, *mode)}"

    def _announced(self) -> str | None:
        """Return the config that all ranks use; None before there is one."""
        if not _store_call(lambda: self.job.store.check([self._entry])):
            return None
        return _store_call(lambda: self.job.store.get(self._entry)).decode()

    def _first(self, text: str) -> str:
        """Publish a config if nobody has, and return what was published first."""
        return _store_call(lambda: self.job.store.compare_set(self._entry, "", text)).decode()


def resolve(resolver: Resolver, request: TuningRequest, *, capturing: bool = False) -> Choice:
    """Resolve as `Resolver.resolve` does, to a config that all ranks of this process's job use.

    While a CUDA graph is captured (`capturing`), all ranks use the config of the first capture.
    A config that ranks agreed on is final.
    """
    job = current_job()
    if job is None:
        return resolver.resolve(request, capturing=capturing)
    choices: list[Choice] = []

    def resolved() -> Config:
        choices.append(resolver.resolve(request, capturing=capturing))
        return choices[0].config

    def configs() -> Iterator[Config]:
        """Yield the configs that a rank may announce: the user's own."""
        yield from request.configs()
        if resolver.options.fallback is not None:
            yield resolver.options.fallback_config(request.space, request.problem.arguments)

    config = RankAgreement(job, request.key, request.expected, configs).agree(resolved)
    own = next((choice for choice in choices if choice.config is config), None)
    if own is None:  # nothing says if the rank that has announced an alternative has timed it
        return Choice(config, True, "known", until_tuned=config.alternative is not None)
    return replace(own, final=own.final or not capturing)
