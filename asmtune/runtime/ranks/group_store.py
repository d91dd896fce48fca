"""What ranks say to each other about one key, in the store of their process group."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Protocol, Self, TypeVar

from asmtune.base.errors import GroupStoreError
from asmtune.base.fingerprint import canonical
from asmtune.core.config import Config

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
