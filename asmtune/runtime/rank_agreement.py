"""The same config of a key for all ranks of a `torch.distributed` job, whatever their stores hold.

Ranks that run different configs differ in their last bits, and the slowest sets the pace of all.
A collective could settle it, but not every rank launches every key. So they use the key-value
store of the default process group, where the first entry of a key counts:

    config       the config that all ranks use, also those that have another one
    claim/N      the Nth attempt to resolve the key: the rank that makes it
    beat/N       that rank's heartbeat counter; once it stands still, the next attempt is open
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
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from asmtune.base.errors import GroupStoreError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.json_codec import printable
from asmtune.base.text import shortened, user_stacklevel
from asmtune.core.config import ALTERNATIVE, Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime.determinism import is_deterministic
from asmtune.runtime.events import LAUNCHING_MODULES, key_text

_T = TypeVar("_T")


class GroupStore(Protocol):
    """Methods of `torch.distributed.Store` that are used."""

    def check(self, keys: list[str], /) -> bool:
        """Return whether all keys are set."""

    def get(self, key: str, /) -> bytes:
        """Return the value of a key; wait if it is not set."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0, and return its value."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set `desired` if nothing is set and `expected` is empty; return the value."""


class GroupStoreEntries:
    """Entries of one key in the group's store. No call waits for another rank.

    Raises:
        GroupStoreError: by every method, where the store fails.
    """

    def __init__(self, store: GroupStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def announced(self) -> str | None:
        """Return the config that all ranks use; None before there is one."""
        name = f"{self._prefix}/config"
        if not _store_call(lambda: self._store.check([name])):
            return None
        return _store_call(lambda: self._store.get(name)).decode()

    def announce(self, text: str) -> str:
        """Publish a config, and return the one that was published first."""
        return self._first(f"{self._prefix}/config", text)

    def claim(self, turn: int, name: str) -> str:
        """Claim an attempt for `name` if nobody has it; return the name of its owner."""
        return self._first(f"{self._prefix}/claim/{turn}", name)

    def beat(self, turn: int) -> None:
        """Raise the heartbeat counter of an attempt."""
        _store_call(lambda: self._store.add(f"{self._prefix}/beat/{turn}", 1))

    def beats(self, turn: int) -> int:
        """Return the heartbeat counter of an attempt."""
        return _store_call(lambda: self._store.add(f"{self._prefix}/beat/{turn}", 0))

    def fail(self, turn: int) -> None:
        """Mark an attempt as failed."""
        _store_call(lambda: self._store.add(f"{self._prefix}/failed/{turn}", 1))

    def failed(self, turn: int) -> bool:
        """Return whether the owner of an attempt has given up."""
        return _store_call(lambda: self._store.add(f"{self._prefix}/failed/{turn}", 0)) > 0

    def _first(self, name: str, text: str) -> str:
        return _store_call(lambda: self._store.compare_set(name, "", text)).decode()


@contextmanager
def resolving(entries: GroupStoreEntries, turn: int, beat_s: float) -> Iterator[None]:
    """Send heartbeats while this rank resolves a key, and mark a failure."""
    over = threading.Event()

    def send_beats() -> None:
        with suppress(GroupStoreError):
            while not over.wait(beat_s):
                entries.beat(turn)

    thread = threading.Thread(target=send_beats, name="asmtune-rank", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:  # raised again; Ctrl-C is a failure to the other ranks too
        with suppress(GroupStoreError):  # without a beat the others will know
            entries.fail(turn)
        raise
    finally:
        over.set()
        thread.join()


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


@dataclass(frozen=True, kw_only=True)
class Resolvers:
    """Functions that give one rank a key's config.

    `known` gives None where no store knows it, and never waits for another process. `resolve`
    tunes if need be, and may raise. `fallback` gives an untuned one at once.
    """

    known: Callable[[], Config | None]
    resolve: Callable[[], Config]
    fallback: Callable[[], Config]


@dataclass(frozen=True, kw_only=True)
class RankPace:
    """Intervals at which ranks wait for each other, in seconds.

    Attributes:
        wait_s: for a config, before all go on with an untuned one.
        beat_s: between two beats of a rank that resolves a key.
        stale_s: without a beat, after which another rank may resolve it.
        poll_s, poll_most_s: between two looks of a rank that waits: at first, and in the end.
            A waiting call of PyTorch would block the store for all other threads.
    """

    wait_s: float
    beat_s: float = 2.0
    stale_s: float = 20.0
    poll_s: float = 0.02
    poll_most_s: float = 0.5


@dataclass(frozen=True)
class AgreementKey:
    """The launch that ranks agree on.

    The kernel's source and the configs of `expected` count, and whether configs are chosen
    deterministically: what ranks agreed on before that may have been timed. `configs` gives the
    space's own, so that another rank's config gets its `pre_hook`.
    """

    key: TuneKey
    expected: Provenance
    configs: Callable[[], Iterable[Config]]

    @property
    def prefix(self) -> str:
        """Prefix of its entries in the group's store."""
        key, made = self.key, self.expected
        # Without versions: ranks with different builds of PyTorch are ranks of one job.
        identity = (key.kernel, canonical(dict(key.shape)), canonical(dict(key.dtypes)))
        mode = ("deterministic",) if is_deterministic() else ()
        return f"asmtune/{digest(*identity, key.device, made.source, made.space, *mode)}"


@dataclass(frozen=True)
class RankGroup:
    """The ranks of a job, seen from one of them."""

    store: GroupStore
    rank: int

    def agree(self, agreement: AgreementKey, resolvers: Resolvers, pace: RankPace) -> Config:
        """Agree on the config that all ranks of the job use.

        Raises:
            AsmtuneError: `resolvers.resolve` failed in this rank; another one tries then.
        """
        negotiation = _Negotiation(self, agreement, pace)
        try:
            config = negotiation.wait_for_config(resolvers)
            if config is not None:
                return config
            if not negotiation.mine:
                return self._publish_fallback(agreement, resolvers, negotiation)
        except GroupStoreError as error:
            return self._agree_alone(agreement, error, resolvers.resolve())
        with negotiation.turn():
            config = resolvers.resolve()
        return self.publish(agreement, config)

    def publish(self, agreement: AgreementKey, config: Config) -> Config:
        """Publish a config and return the one that all ranks use; never waits."""
        entries, text = GroupStoreEntries(self.store, agreement.prefix), encode_config(config)
        try:
            first = entries.announce(text)
        except GroupStoreError as error:
            return self._agree_alone(agreement, error, config)
        return config if first == text else decode_config(first, agreement.configs())

    def _publish_fallback(
        self, agreement: AgreementKey, resolvers: Resolvers, negotiation: _Negotiation
    ) -> Config:
        fallback = resolvers.fallback()
        config = self.publish(agreement, fallback)
        if config is fallback:
            waited = f"{negotiation.pace.wait_s:g}"
            _warn(
                f"rank {self.rank}: {key_text(agreement.key)}: waited {waited} s for "
                f"{negotiation.holder} to tune it; all ranks of this job go on with {config}, "
                "untuned; tune it before the job, or set ASMTUNE_WAIT_S higher"
            )
        return config

    def _agree_alone(
        self, agreement: AgreementKey, error: GroupStoreError, config: Config
    ) -> Config:
        _warn(
            f"rank {self.rank}: {key_text(agreement.key)}: the default process group's store "
            f"failed ({error}); this rank goes on with {config}, and others may have another "
            "config; tune it before the job"
        )
        return config


class _Negotiation:
    """A rank's exchange with the others about a key; `mine` if it is to resolve the key."""

    def __init__(self, job: RankGroup, agreement: AgreementKey, pace: RankPace) -> None:
        self._group, self._agreement = job, agreement
        self._entries = GroupStoreEntries(job.store, agreement.prefix)
        # One process may meet a key in two threads, on two GPUs of one kind.
        self._name = f"rank {job.rank} ({secrets.token_hex(4)})"
        self._try = 0
        self._beats = -1
        self._since = time.monotonic()
        self.pace = pace
        self.mine = False
        self.holder = "another rank"

    def wait_for_config(self, resolvers: Resolvers) -> Config | None:
        """Wait for a published config; None if this rank is to resolve the key, or time is over."""
        announced = self._announced()
        if announced is not None:
            return announced
        known = resolvers.known()
        if known is not None:
            return self._group.publish(self._agreement, known)
        end, pause_s = time.monotonic() + self.pace.wait_s, self.pace.poll_s
        while True:
            self._claim()
            # Read after the claim: its last owner may have published a config just before it ended.
            announced = self._announced()
            left_s = end - time.monotonic()
            if announced is not None or self.mine or left_s <= 0:
                return announced
            time.sleep(min(left_s, pause_s))
            pause_s = min(1.5 * pause_s, self.pace.poll_most_s)

    def turn(self) -> AbstractContextManager[None]:
        return resolving(self._entries, self._try, self.pace.beat_s)

    def _announced(self) -> Config | None:
        text = self._entries.announced()
        return None if text is None else decode_config(text, self._agreement.configs())

    def _claim(self) -> None:
        """Claim the open attempt, or check that its owner still sends heartbeats."""
        holder = self._entries.claim(self._try, self._name)
        self.mine = holder == self._name
        if self.mine:
            return
        self.holder = holder.partition(" (")[0]
        beats, now = self._entries.beats(self._try), time.monotonic()
        if beats != self._beats:
            self._beats, self._since = beats, now
        if self._entries.failed(self._try) or now - self._since >= self.pace.stale_s:
            self._try, self._beats, self._since = self._try + 1, -1, now


def _warn(message: str) -> None:
    warnings.warn(message, RankWarning, stacklevel=user_stacklevel(*LAUNCHING_MODULES))
