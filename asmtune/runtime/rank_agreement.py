"""One config a key for all ranks of a `torch.distributed` job, whatever their stores hold.

Ranks that run different configs differ in their last bits, and the slowest sets the pace of all.
A collective could settle it, but not every rank need meet a key. So they settle it through the
key-value store of the default process group, where the first word about a key counts:

    told         the config: who has another one takes it as well
    claim/N      the Nth try to find it: whose it is
    beat/N       counts up while that rank is at work; once it stands still, the next try is open
    failed/N     that rank gave up: the next try is open

A rank that knows a config (its store has it, or it ships) tells it at once, even while another
one tunes. One that does not, and finds the key claimed, waits. After `wait_s` it stops waiting,
since the rank that tunes may itself wait for this one's part in a collective: then it tells an
untuned config, and all go on with that one, the rank that tunes included. So ranks may wait for
each other but never differ in silence; only where the group's store fails does a rank go its
own way, and says so.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from asmtune.base.errors import GroupStoreError
from asmtune.base.fingerprint import canonical, digest
from asmtune.base.stacklevel import frames_inside
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.runtime.events import THROUGH, spoken_key

_T = TypeVar("_T")


class GroupStore(Protocol):
    """What of `torch.distributed.Store` is used."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are set."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value of a key; waits where it is not set."""
        ...

    def add(self, key: str, amount: int, /) -> int:
        """The counter after adding; from 0 where it was not set."""
        ...

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """The value afterwards: `desired` where none was set and `expected` is empty."""
        ...


class Words:
    """The entries of one key. No call waits for another rank.

    Args:
        store: that all ranks share.
        place: of the entries.

    Raises:
        GroupStoreError: by every method, where the store fails.
    """

    def __init__(self, store: GroupStore, place: str) -> None:
        self._store, self._place = store, place

    def told(self) -> str | None:
        """The config that counts; None before there is one."""
        name = f"{self._place}/told"
        if not _asked(lambda: self._store.check([name])):
            return None
        return _asked(lambda: self._store.get(name)).decode()

    def tell(self, text: str) -> str:
        """Tells a config, and gives back the one that was told first."""
        return self._first(f"{self._place}/told", text)

    def claim(self, turn: int, name: str) -> str:
        """Whose a try is: `name`'s where it was nobody's."""
        return self._first(f"{self._place}/claim/{turn}", name)

    def beat(self, turn: int) -> None:
        """Shows that this rank is at work."""
        _asked(lambda: self._store.add(f"{self._place}/beat/{turn}", 1))

    def beats(self, turn: int) -> int:
        """How often the rank whose try it is has beaten."""
        return _asked(lambda: self._store.add(f"{self._place}/beat/{turn}", 0))

    def fail(self, turn: int) -> None:
        """Tells that this rank has given up."""
        _asked(lambda: self._store.add(f"{self._place}/failed/{turn}", 1))

    def failed(self, turn: int) -> bool:
        """Whether the rank whose try it is has given up."""
        return _asked(lambda: self._store.add(f"{self._place}/failed/{turn}", 0)) > 0

    def _first(self, name: str, text: str) -> str:
        return _asked(lambda: self._store.compare_set(name, "", text)).decode()


class Turn:
    """The time in which this rank resolves a key: it beats, and tells if it gives up."""

    def __init__(self, words: Words, turn: int, beat_s: float) -> None:
        self._words, self._turn, self._beat_s = words, turn, beat_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asmtune-rank", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if kind is not None:
            try:
                self._words.fail(self._turn)
            except GroupStoreError:
                return  # without a beat the others will know

    def _run(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                self._words.beat(self._turn)
            except GroupStoreError:
                return


def written(config: Config) -> str:
    """A config as ranks tell it; two that do the same read the same."""
    return canonical(config.to_dict())


def read_config(text: str, configs: Iterable[Config]) -> Config:
    """The config that was told: one of the space's own where it has it, with its `pre_hook`.

    One with a derived cap is not of the space: the hook is that of the one without.
    """
    values = json.loads(text)
    cap = values.get("maxnreg")
    bare = canonical({name: value for name, value in values.items() if name != "maxnreg"})
    capped: Config | None = None
    for own in configs:
        if written(own) == text:
            return own
        if capped is None and own.maxnreg is None and written(own) == bare:
            capped = own.with_cap(cap)
    return Config.from_dict(values) if capped is None else capped


def _asked(question: Callable[[], _T]) -> _T:
    """What the store answers.

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
    """How one rank would find a key's config.

    Attributes:
        known: looks it up; None where it is not known. Never waits for another process.
        resolve: finds it, by tuning if need be; may raise.
        fallback: an untuned one, at once.
    """

    known: Callable[[], Config | None]
    resolve: Callable[[], Config]
    fallback: Callable[[], Config]


@dataclass(frozen=True, kw_only=True)
class RankPace:
    """How ranks wait for each other, in seconds.

    Attributes:
        wait_s: for a config, before all go on with an untuned one.
        beat_s: between two beats of a rank that resolves a key.
        stale_s: without a beat, after which another rank may resolve it.
        poll_s, poll_most_s: between two looks of a rank that waits: at first, and in the end.
            Looks, for a waiting call of PyTorch's keeps the store from all other threads.
    """

    wait_s: float
    beat_s: float = 2.0
    stale_s: float = 20.0
    poll_s: float = 0.02
    poll_most_s: float = 0.5


@dataclass(frozen=True)
class AgreementKey:
    """What is to be agreed on.

    Attributes:
        key: of the launch.
        expected: how it would be tuned now; of it the kernel's source and the configs count.
        configs: of the space, so that one that another rank tells gets its `pre_hook`.
    """

    key: TuneKey
    expected: Provenance
    configs: Callable[[], Iterable[Config]]

    @property
    def place(self) -> str:
        """Where ranks talk about it."""
        key, made = self.key, self.expected
        # Not by versions: ranks with different builds of PyTorch are ranks of one job.
        identity = (key.kernel, canonical(dict(key.shape)), canonical(dict(key.dtypes)))
        return f"asmtune/{digest(*identity, key.device, made.source, made.space)}"


@dataclass(frozen=True)
class RankGroup:
    """The ranks of a job, as one of them sees them.

    Attributes:
        store: that all ranks share.
        rank: of this process.
    """

    store: GroupStore
    rank: int

    def agreed(self, matter: AgreementKey, ways: Resolvers, pace: RankPace) -> Config:
        """The config that all ranks of the job use.

        Raises:
            AsmtuneError: `ways.resolve` failed in this rank; another one tries then.
        """
        talk = _Negotiation(self, matter, pace)
        try:
            config = talk.listen(ways)
            if config is not None:
                return config
            if not talk.mine:
                return self._untuned(matter, ways, talk)
        except GroupStoreError as error:
            return self._alone(matter, error, ways.resolve())
        with talk.turn():
            found = ways.resolve()
        return self.offered(matter, found)

    def offered(self, matter: AgreementKey, config: Config) -> Config:
        """The config that all ranks of the job use: this one where none was told; never waits."""
        words = Words(self.store, matter.place)
        try:
            first = words.tell(written(config))
        except GroupStoreError as error:
            return self._alone(matter, error, config)
        return config if first == written(config) else read_config(first, matter.configs())

    def _untuned(self, matter: AgreementKey, ways: Resolvers, talk: _Negotiation) -> Config:
        fallback = ways.fallback()
        config = self.offered(matter, fallback)
        if config is fallback:
            _warn(
                f"rank {self.rank}: {spoken_key(matter.key)}: waited {talk.pace.wait_s:g} s for "
                f"{talk.holder} to tune it; all ranks of this job go on with {config}, untuned; "
                "tune it before the job, or set ASMTUNE_WAIT_S higher"
            )
        return config

    def _alone(self, matter: AgreementKey, error: GroupStoreError, config: Config) -> Config:
        _warn(
            f"rank {self.rank}: {spoken_key(matter.key)}: the default process group's store "
            f"failed ({error}); this rank goes on with {config}, and others may have another "
            "config; tune it before the job"
        )
        return config


class _Negotiation:
    """One rank's words with the others about one key.

    Attributes:
        pace: how ranks wait for each other.
        mine: whether this rank is to resolve the key.
        holder: who resolves it otherwise, for messages.
    """

    def __init__(self, job: RankGroup, matter: AgreementKey, pace: RankPace) -> None:
        self._job, self._matter = job, matter
        self._words = Words(job.store, matter.place)
        # One process may meet a key in two threads, on two GPUs of one kind.
        self._name = f"rank {job.rank} ({secrets.token_hex(4)})"
        self._try = 0
        self._beats = -1
        self._since = time.monotonic()
        self.pace = pace
        self.mine = False
        self.holder = "another rank"

    def listen(self, ways: Resolvers) -> Config | None:
        """The config that was told, or None: then it is this rank's turn, or time is over."""
        told = self._told()
        if told is not None:
            return told
        known = ways.known()
        if known is not None:
            return self._job.offered(self._matter, known)
        end, pause_s = time.monotonic() + self.pace.wait_s, self.pace.poll_s
        while True:
            self._claim()
            # Asked after the claim: who had it may have told its config just before it ended.
            told = self._told()
            left_s = end - time.monotonic()
            if told is not None or self.mine or left_s <= 0:
                return told
            time.sleep(min(left_s, pause_s))
            pause_s = min(1.5 * pause_s, self.pace.poll_most_s)

    def turn(self) -> Turn:
        """The time in which this rank resolves the key; a context."""
        return Turn(self._words, self._try, self.pace.beat_s)

    def _told(self) -> Config | None:
        text = self._words.told()
        return None if text is None else read_config(text, self._matter.configs())

    def _claim(self) -> None:
        """Claims the try that is open, or looks how the rank that has it is."""
        holder = self._words.claim(self._try, self._name)
        self.mine = holder == self._name
        if self.mine:
            return
        self.holder = holder.partition(" (")[0]
        beats, now = self._words.beats(self._try), time.monotonic()
        if beats != self._beats:
            self._beats, self._since = beats, now
        if self._words.failed(self._try) or now - self._since >= self.pace.stale_s:
            self._try, self._beats, self._since = self._try + 1, -1, now


def _warn(message: str) -> None:
    warnings.warn(message, RankWarning, stacklevel=frames_inside(*THROUGH))
