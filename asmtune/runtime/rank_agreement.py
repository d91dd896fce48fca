"""The same config of a key for all ranks of a `torch.distributed` job, whatever their stores hold.

Ranks that run different configs differ in their last bits, and the slowest sets the pace of all.
A collective could settle it, but not every rank launches every key. So they use the key-value
store of the default process group, where the first entry of a key counts:

    config       the config that all ranks use, also those that have another one
    claim/N      the Nth attempt to resolve the key: the rank that makes it
    failed/N     that rank gave up: the next attempt is open

A rank that knows a config (stored or shipped) publishes it at once, even while another one
tunes. A rank that knows none and finds the key claimed waits. After `wait_s` it stops waiting,
since the rank that tunes may itself wait for this one's part in a collective. Then it publishes
an untuned config, and all ranks continue with that one, the rank that tunes included. So ranks
may wait for each other but never differ in silence; only if the group's store fails does a rank
use its own config, with a warning.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from asmtune.base.errors import GroupStoreError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.json_codec import printable
from asmtune.base.settings import Settings
from asmtune.base.text import shortened, user_stacklevel
from asmtune.core.config import ALTERNATIVE, Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime.events import LAUNCHING_MODULES, key_text
from asmtune.runtime.misses.lookups import Choice
from asmtune.runtime.options import is_deterministic

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

    from asmtune.runtime.misses.resolver import Resolver
    from asmtune.tuning.request import TuningRequest

_T = TypeVar("_T")

_PAUSE_S: Final = 0.02
_MOST_PAUSE_S: Final = 0.5
"""Seconds between two looks of a rank that waits: at first, and in the end. A waiting call of
PyTorch would block the store for all other threads."""


def encode_config(config: Config) -> str:
    """Encode a config as text; configs that do the same have the same text."""
    return canonical(config.to_dict())


def decode_config(text: str, configs: Iterable[Config]) -> Config:
    """Decode a config; return the space's equal one, with its `pre_hook`.

    A config with a derived cap is not in the space: its hook is that of the one without.

    Raises:
        GroupStoreError: no config equals it, so that nobody knows what it would run.
    """
    try:
        values = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise GroupStoreError(f"it holds {shortened(printable(text))}, and no config") from error
    alternative = values.pop(ALTERNATIVE, None)
    if isinstance(alternative, str):
        own = decode_config(canonical(values), configs)
        return own.with_alternative(alternative)
    cap = values.get("maxnreg")
    bare = canonical({name: value for name, value in values.items() if name != "maxnreg"})
    capped: Config | None = None
    for own in configs:
        if encode_config(own) == text:
            return own
        if capped is None and own.maxnreg is None and encode_config(own) == bare:
            capped = own.with_cap(cap)
    if capped is None:
        shown = shortened(printable(text), 200)
        raise GroupStoreError(f"it holds {shown}, which is not in the kernel's space")
    return capped


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
    """Ranks go on with an untuned config, or may run different ones."""


class RankJob(NamedTuple):
    """The ranks of a job, seen from one of them."""

    store: Store
    rank: int


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

    def agree(
        self,
        known: Callable[[], Config | None],
        resolve: Callable[[], Config],
        fallback: Callable[[], Config],
        wait_s: float,
    ) -> Config:
        """Agree on the config that all ranks of the job use.

        Args:
            known: gives the config that this rank's stores know, and waits for no other process.
            resolve: tunes if need be, and may raise.
            fallback: gives an untuned config at once.
            wait_s: seconds to wait for a config, before all go on with an untuned one.

        Raises:
            AsmtuneError: `resolve` failed in this rank; another one tries then.
        """
        # One process may meet a key in two threads, on two GPUs of one kind.
        name, attempt = f"rank {self.job.rank} ({secrets.token_hex(4)})", 0
        end, pause_s = time.monotonic() + wait_s, _PAUSE_S
        try:
            text = self._announced()
            if text is None and (own := known()) is not None:
                return self.publish(own)
            while text is None:
                holder = self._first(f"claim/{attempt}", name)
                # Read after the claim: its owner may have published a config just before.
                text = self._announced()
                if text is not None or holder == name:
                    break
                attempt += self._count_failures(attempt, 0) > 0
                left_s = end - time.monotonic()
                if left_s <= 0:
                    return self._publish_fallback(fallback(), holder, wait_s)
                time.sleep(min(left_s, pause_s))
                pause_s = min(1.5 * pause_s, _MOST_PAUSE_S)
            if text is not None:
                return decode_config(text, self.configs())
        except GroupStoreError as error:
            return self._go_alone(error, resolve())
        try:
            config = resolve()
        except BaseException:  # raised again; Ctrl-C is a failure to the other ranks too
            with suppress(GroupStoreError):
                self._count_failures(attempt, 1)
            raise
        return self.publish(config)

    def publish(self, config: Config) -> Config:
        """Publish a config and return the one that all ranks use; never waits."""
        text = encode_config(config)
        try:
            first = self._first("config", text)
        except GroupStoreError as error:
            return self._go_alone(error, config)
        return config if first == text else decode_config(first, self.configs())

    def _publish_fallback(self, fallback: Config, holder: str, wait_s: float) -> Config:
        config = self.publish(fallback)
        if config is fallback:
            self._warn(
                f"waited {wait_s:g} s for {holder.partition(' (')[0]} to tune it; all ranks of "
                f"this job go on with {config}, untuned; tune it before the job, or set "
                "ASMTUNE_WAIT_S higher"
            )
        return config

    def _go_alone(self, error: GroupStoreError, config: Config) -> Config:
        self._warn(
            f"the default process group's store failed ({error}); this rank goes on with {config}, "
            "and others may have another config; tune it before the job"
        )
        return config

    def _warn(self, what: str) -> None:
        text = f"rank {self.job.rank}: {key_text(self.key)}: {what}"
        warnings.warn(text, RankWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))

    def _entry(self, name: str) -> str:
        """Return the name of an entry of the key in the group's store."""
        key, made = self.key, self.expected
        # Without versions: ranks with different builds of PyTorch are ranks of one job.
        identity = (key.kernel, canonical(dict(key.shape)), canonical(dict(key.dtypes)))
        mode = ("deterministic",) if self.deterministic else ()
        return f"asmtune/{digest(*identity, key.device, made.source, made.space, *mode)}/{name}"

    def _announced(self) -> str | None:
        """Return the config that all ranks use; None before there is one."""
        name = self._entry("config")
        if not _store_call(lambda: self.job.store.check([name])):
            return None
        return _store_call(lambda: self.job.store.get(name)).decode()

    def _first(self, name: str, text: str) -> str:
        """Set an entry if nobody has, and return what was set first."""
        return _store_call(lambda: self.job.store.compare_set(self._entry(name), "", text)).decode()

    def _count_failures(self, attempt: int, more: int) -> int:
        return _store_call(lambda: self.job.store.add(self._entry(f"failed/{attempt}"), more))


def current_job() -> RankJob | None:
    """Return the job that this process is a rank of; None without one, or if it has one rank.

    It imports no PyTorch: a process that has not loaded `torch.distributed` is no rank.
    """
    group: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if group is None or not group.is_initialized() or group.get_world_size() < 2:
        return None
    store = group._get_default_store()
    return None if store is None else RankJob(store, group.get_rank())


def resolve(resolver: Resolver, request: TuningRequest, *, capturing: bool = False) -> Choice:
    """Resolve as `Resolver.resolve` does, to a config that all ranks of this process's job use.

    While a CUDA graph is captured (`capturing`), all ranks use the config of the first capture.
    A config that ranks agreed on is final.
    """
    job = current_job()
    if job is None:
        return resolver.resolve(request, capturing=capturing)
    choices: list[Choice] = []

    def chosen(choice: Choice) -> Config:
        choices.append(choice)
        return choice.config

    def known() -> Config | None:
        choice = resolver.resolve(request, capturing=True)
        return chosen(choice) if choice.final else None

    def pick() -> Config:
        return chosen(resolver.resolve(request, capturing=True))

    def configs() -> Iterator[Config]:
        """Yield the configs that a rank may announce: the user's own."""
        yield from request.configs()
        if resolver.options.fallback is not None:
            yield resolver.options.fallback_config(request.space, request.problem.arguments)

    agreement = RankAgreement(job, request.key, request.expected, configs)
    if capturing:
        config = agreement.publish(pick())
    else:
        wait_s = Settings.from_environment().wait_s
        config = agreement.agree(known, lambda: chosen(resolver.resolve(request)), pick, wait_s)
    own = next((choice for choice in choices if choice.config is config), None)
    if own is None:
        return Choice(config, True, "known")
    return replace(own, final=own.final or not capturing)
