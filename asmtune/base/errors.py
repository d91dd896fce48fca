"""Errors that asmtune raises: small classes, each also the builtin that fits.

Every message says what is wrong, where, the limit against the actual value,
and what to do next, in one line: the command line prints it as it stands.
"""

from __future__ import annotations

from typing import Final


class AsmtuneError(Exception):
    """Base of every error that asmtune raises on purpose."""


class InputError(AsmtuneError, ValueError):
    """The user's input cannot be used; the command line exits with 2."""


class ArgumentTypeError(InputError, TypeError):
    """An argument is of a type that a function never takes; shows the right form."""


class SpaceError(InputError):
    """A space of configs is malformed or has no feasible point."""


class TargetError(InputError):
    """A target is unknown, or its descriptor is malformed."""


class ProblemError(InputError):
    """A kernel cannot be found, loaded or bound to the arguments given."""


class OracleError(InputError):
    """A file of recorded timings cannot be read or has another format."""


class ParseError(InputError):
    """Assembly text or an ELF file is not what it claims to be."""


class StoreError(AsmtuneError, OSError):
    """The store or the artifact cache cannot be read or written."""


class MissingPackageError(AsmtuneError, ImportError):
    """An optional package is not installed; names the extra that installs it."""


class CompileError(AsmtuneError, RuntimeError):
    """No config of a kernel compiles; carries the compiler's own message."""


class UnreadableError(CompileError):
    """No config could be read, or no compiler process starts: the kernel is not at fault."""


class CompileLimitError(UnreadableError):
    """No config compiled within asmtune's limits of time and memory; Triton has none."""


class MeasureError(AsmtuneError, RuntimeError):
    """Nothing could be timed: no GPU, or every candidate failed."""


class UntimedError(MeasureError):
    """Nothing is timed; the problem itself can be launched."""


class MemoryShortError(UntimedError):
    """Nothing could be timed, since memory is short."""


class ForeignWriteError(UntimedError):
    """Nothing is timed, since launches may change memory that nothing puts back."""


class UnavailableError(AsmtuneError):
    """Nothing here can run it: no GPU, or no compiler; the command line exits with 3."""


class NoGpuError(UnavailableError, MeasureError):
    """There is no GPU to launch or time on."""


class NoCompilerError(UnavailableError, UnreadableError):
    """No process of the compiler starts, or a program of it is missing."""


class MissError(AsmtuneError, LookupError):
    """No store holds the key, and `on_miss="raise"` allows only a tuned config."""


class GroupStoreError(AsmtuneError, RuntimeError):
    """The key-value store of a process group cannot be used; says why."""


USER_CODE_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)
"""Exceptions that a user's function may raise for values that it does not handle."""
