"""`patch()`: an unchanged program's `triton.autotune` uses asmtune.

A kernel that is decorated while a patch is active becomes an `AsmAutotuner`. For autotuners that
were made before, or by subclasses, `Autotuner.run` itself is redirected.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from asmtune.base.errors import ArgumentTypeError, InputError
from asmtune.base.text import did_you_mean, shortened, user_stacklevel
from asmtune.core.keys.buckets import BucketRules
from asmtune.triton_api.jit_functions import is_kernel, plain_name

if TYPE_CHECKING:
    from asmtune.core.keys.buckets import RuleSource
    from asmtune.runtime.options import Limit, OnMiss
    from asmtune.runtime.patching.patched_autotuner import ConvertedAutotuner, PatchedAutotuner
    from asmtune.tuning.options import Check, Effort


class PatchOptions(TypedDict, total=False):
    """Keywords of `patch`; `TuneOptions` and `DecoratorOptions` say what each is for."""

    effort: str | Effort
    isolate: bool
    seed: int
    force: bool
    check: Check
    on_miss: OnMiss
    skip_tuning_below_us: Limit | None
    buckets: RuleSource


_OF_KEYS: Final = "buckets"


def check_options(options: Mapping[str, Any]) -> None:
    """Check options of `patch`.

    Raises:
        InputError: as `patch`.
    """
    known = tuple(PatchOptions.__annotations__)
    for name in options:
        if name not in known:
            raise InputError(
                f"patch: {name!r} is no option for all kernels: they are {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
    from asmtune.runtime.options import DecoratorOptions

    BucketRules.of(options.get(_OF_KEYS, ()))
    rest = {name: value for name, value in options.items() if name != _OF_KEYS}
    DecoratorOptions(space={}).revised(rest)


_PATCHED: Final = "_asmtune_twin"

# Innermost last. Replaced whole and under the lock, so that launches read it without one.
_patches: tuple[_Patch, ...] = ()
_redirect: _Redirect | None = None
_lock = threading.RLock()


def patch(*misplaced: Any, **options: Unpack[PatchOptions]) -> Patching:
    """Make `triton.autotune` use asmtune, in the whole process, until the context is left.

        with asmtune.patch(effort="quick"):
            program()

    Kernels decorated inside are `AsmAutotuner`s, and stay so. Autotuners that existed before
    launch through asmtune inside, and as before afterwards; so do subclasses, unless they
    replace parts of Triton's tuning. Where asmtune's decorator is stricter than Triton, Triton's
    meaning holds: a grid of no programs launches nothing. Contexts nest: the last one that is
    still active counts, in every thread. `@asmtune.patch()` above a function enters one for each
    call.

    Args:
        misplaced: none; options are given by name.
        options: `effort`, `isolate`, `seed`, `force`, `check`,
            `on_miss` and `skip_tuning_below_us` (see `asm_autotune` and `reconfigure`), and
            `buckets`: rules for the keys, such as
            `["pow2(M)", "kernel_name:multiple(128, M)"]`. A rule that changed no key is warned of
            when the context is left.

    Raises:
        InputError: an option is unknown, belongs to one kernel, or has an invalid value.
    """
    if misplaced:
        raise _misused(misplaced[0])
    if _OF_KEYS in options:
        options[_OF_KEYS] = BucketRules.of(options[_OF_KEYS]).rules
    check_options(options)
    return Patching(options)


def _misused(value: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"patch: {shortened(repr(value))} is no option: write with asmtune.patch(effort='quick'): "
        "around the program, or @asmtune.patch() above a function that runs it"
    )


class BucketWarning(UserWarning):
    """A rule of `patch(buckets=...)` changed no key of the kernels met."""


class PatchWarning(UserWarning):
    """A kernel under `patch` stays with Triton's own tuner, or its key has a misspelt name."""


@functools.cache
def _warn_of_key(kernel: str, name: str, parameters: tuple[str, ...]) -> None:
    """Warn once of a name in a kernel's key that is no parameter: Triton says nothing."""
    line = (
        f"patch: kernel {kernel}: key {name!r} is no parameter of it, and counts for nothing, as "
        f"in triton.autotune: they are {', '.join(parameters)}{did_you_mean(name, parameters)}"
    )
    warnings.warn(line, PatchWarning, stacklevel=user_stacklevel("triton"))


def _converted(instance: Any, options: Mapping[str, Any]) -> ConvertedAutotuner | None:
    """Convert one of Triton's autotuners; None, with a warning, if asmtune refuses it."""
    from asmtune.runtime.patching.patched_autotuner import convert

    for name in instance.keys or ():
        if name not in instance.arg_names:
            _warn_of_key(plain_name(instance), name, tuple(instance.arg_names))
    try:
        return convert(instance, options)
    except InputError as error:
        name = getattr(instance.base_fn, "__name__", "a kernel")
        line = f"patch: {name} is left to triton.autotune: {error}"
        warnings.warn(line, PatchWarning, stacklevel=user_stacklevel("triton"))
        return None


def _warn_unused(line: str) -> None:
    warnings.warn(f"patch: {line}", BucketWarning, stacklevel=user_stacklevel("contextlib"))


class Patching(contextlib.ContextDecorator):
    """A patch that is active while the context is entered.

    Attributes:
        tell: called at the exit with a line on each rule of `buckets` that changed no key.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self.tell: Callable[[str], None] = _warn_unused
        self._own: list[_Patch] = []

    def __call__(self, function: Any) -> Any:
        """Decorate a function: each call enters a patch of its own."""
        if is_kernel(function) or isinstance(function, type) or not callable(function):
            raise _misused(function)
        return super().__call__(function)

    def _recreate_cm(self) -> Patching:
        return Patching(self._options)

    def __enter__(self) -> None:
        own = _Patch(self._options)
        _enter(own)
        self._own.append(own)

    def __exit__(self, *_: object) -> None:
        own = self._own.pop()
        _leave(own)
        for line in own.rules.unused() if os.getpid() == own.process else ():
            self.tell(line)


class _Patch:
    """An active `patch()`, with the autotuners that were launched while it was active."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.rules = BucketRules.of(options.get(_OF_KEYS, ()))
        self.options = {**options, _OF_KEYS: self.rules}
        self.process = os.getpid()
        self.patched: weakref.WeakKeyDictionary[Any, PatchedAutotuner] = weakref.WeakKeyDictionary()


class _Redirect:
    """The changes to Triton and to loaded modules while any patch is active."""

    def __init__(self) -> None:
        from asmtune.runtime.autotuner import AsmAutotuner
        from asmtune.triton_api.autotuners import Autotuner, autotune

        self._base: Any = Autotuner
        self._asmtune_class: type = AsmAutotuner
        self._autotune = autotune
        self._replacement = self._decorating(self._autotune)
        self._methods = {name: vars(self._base)[name] for name in ("run", "warmup")}
        self._launches = {name: self._launching(name) for name in self._methods}
        self._caches: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Replace Triton's functions by asmtune's."""
        for name, launch in self._launches.items():
            setattr(self._base, name, launch)
        _rebind(self._autotune, self._replacement)

    def remove(self) -> None:
        """Restore Triton's functions; what the program has set meanwhile stays."""
        _rebind(self._replacement, self._autotune)
        for name, launch in self._launches.items():
            if vars(self._base)[name] is launch:
                setattr(self._base, name, self._methods[name])

    def attach(self, instance: Any, patched: PatchedAutotuner) -> None:
        """Let an autotuner launch through a `PatchedAutotuner`, and show the cache of that one."""
        self._caches.setdefault(instance, instance.cache)
        setattr(instance, _PATCHED, patched)
        if patched.tuner is not None:
            instance.cache = patched.cache

    def detach(self, instance: Any) -> None:
        """Restore an autotuner as it was before `attach`."""
        instance.cache = self._caches.pop(instance)
        delattr(instance, _PATCHED)

    def _patched(self, instance: Any) -> PatchedAutotuner | None:
        """Return the `PatchedAutotuner` of the innermost patch; None if Triton itself launches."""
        from asmtune.runtime.patching import patched_autotuner as parts
        from asmtune.triton_api.autotuners import has_own_parts

        if isinstance(instance, self._asmtune_class):
            return None  # it asks for what it inherits
        with _lock:
            if not _patches:
                return None  # left by another thread just now
            active = _patches[-1]
            patched = active.patched.get(instance)
            if patched is None or not patched.fits(instance):
                by_triton = has_own_parts(instance)
                tuner = None if by_triton else _converted(instance, active.options)
                own = patched.pinned(instance) if patched else parts.pinned_before(instance)
                patched = parts.PatchedAutotuner(active, instance, tuner, own)
                active.patched[instance] = patched
            self.attach(instance, patched)
            return patched

    def _launching(self, name: str) -> Callable[..., Any]:
        original = self._methods[name]

        @functools.wraps(original)
        def launch(instance: Any, *args: Any, **keywords: Any) -> Any:
            patches = _patches
            if not patches:
                return original(instance, *args, **keywords)
            patched = instance.__dict__.get(_PATCHED)
            if patched is None or patched.owner is not patches[-1] or not patched.fits(instance):
                patched = self._patched(instance)
            if (
                patched is None
                or patched.tuner is None
                or patched.is_pinned(instance, args, keywords)
            ):
                return original(instance, *args, **keywords)
            result = getattr(patched.tuner, name)(*args, **keywords)
            if name == "run":
                patched.mirror(instance, args, keywords)
            return result

        return launch

    def _decorating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)  # libraries ask for its signature to learn what Triton can
        def autotune(*args: Any, **keywords: Any) -> Any:
            decorate = original(*args, **keywords)
            # While it traces a launch, PyTorch makes autotuners of its own of what was chosen.
            if sys._getframe(1).f_globals.get("__name__", "").startswith("torch."):
                return decorate

            def decorator(fn: Any) -> Any:
                autotuner = decorate(fn)
                patched = self._patched(autotuner)
                tuner = None if patched is None else patched.tuner
                return autotuner if tuner is None else tuner

            return decorator

        return autotune


def _enter(own: _Patch) -> None:
    global _patches, _redirect
    with _lock:
        if _redirect is None:
            _redirect = _Redirect()
            _redirect.install()
        _patches = (*_patches, own)


def _leave(own: _Patch) -> None:
    global _patches, _redirect
    with _lock:
        _patches = tuple(active for active in _patches if active is not own)
        redirect = _redirect
        if redirect is None:
            return
        for instance, patched in list(own.patched.items()):
            if vars(instance).get(_PATCHED) is patched:
                redirect.detach(instance)
                outer = [
                    active.patched[instance] for active in _patches if instance in active.patched
                ]
                if outer:
                    redirect.attach(instance, outer[-1])
        if not _patches:
            redirect.remove()
            _redirect = None


def _rebind(old: Any, new: Any) -> None:
    """Replace one object by another among the globals of all loaded modules.

    A module that loads itself on first use is looked at without being woken.
    """
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType):
            names = object.__getattribute__(module, "__dict__")
            for name in [name for name, value in list(names.items()) if value is old]:
                names[name] = new
