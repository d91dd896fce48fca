"""Python imports this before a program of `asmtune run`; here asmtune waits for Triton.

A program that has not imported Triton yet finds what Python gives it: its environment, its
modules, and no frame below its own. So this imports nothing that lies in a file.
"""

import atexit
import os
import sys

TYPE_CHECKING = False  # that of `typing`, which is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from asmtune.cli.program import Program

_FOLDER = __file__.rpartition(os.sep)[0]
_ROOT = _FOLDER.rpartition(os.sep + "asmtune" + os.sep)[0]


class _Waiting:
    """A finder of modules that acts when the program imports Triton.

    It finds asmtune itself where `asmtune run` was found, whatever `sys.path` has become. Where
    Triton is imported by a module of asmtune, patching waits until that one is loaded: it may
    import the same module, and would meet it half loaded.
    """

    def __init__(self, instructions: str, tells_anyway: bool) -> None:
        self._instructions = instructions
        self._tells_anyway = tells_anyway
        self._process = os.getpid()
        self._program: Program | None = None
        self._loading: list[str] = []  # of all threads, which may import one another's modules
        self._is_due = False

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Find asmtune; let another finder find Triton, and patch it once it is loaded."""
        if name == "asmtune":
            from importlib.machinery import PathFinder

            return PathFinder.find_spec(name, [_ROOT])
        if name != "triton" and (self._program is not None or not name.startswith("asmtune.")):
            return None
        others = [one for one in sys.meta_path if one is not self and hasattr(one, "find_spec")]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            self._patch_once_loaded(spec.loader)
        return spec

    def _patch_once_loaded(self, loader: object) -> None:
        load = loader.exec_module  # type: ignore[attr-defined]

        def load_and_patch(module: "ModuleType") -> None:
            del loader.exec_module  # type: ignore[attr-defined]
            self._loading.append(module.__name__)
            try:
                load(module)
                # No other package of that name has kernels.
                self._is_due |= module.__name__ == "triton" and hasattr(module, "JITFunction")
            finally:
                self._loading.remove(module.__name__)
                if self._is_due and not self._loading:
                    self._is_due = False
                    self._loaded().patch()

        # Python leaves frames of this name out of the traceback where Triton cannot be imported.
        load_and_patch.__code__ = load_and_patch.__code__.replace(
            co_filename="<frozen importlib._bootstrap>", co_name="_call_with_frames_removed"
        )
        loader.exec_module = load_and_patch  # type: ignore[attr-defined]

    def _loaded(self) -> "Program":
        if self._program is None:
            from asmtune.cli.program import Program

            self._program = Program(self._instructions, self._process)
        return self._program

    def end(self) -> None:
        """Tell what was tuned; runs after all that the program has registered."""
        if self._program is not None or (self._tells_anyway and os.getpid() == self._process):
            self._loaded().end()


def _begin() -> None:
    """Give the process back as Python would have made it, but for the finder."""
    waiting = _Waiting(os.environ.pop("ASMTUNE_RUN"), bool(os.environ.pop("ASMTUNE_RUN_TELLS")))
    hidden = "ASMTUNE_HIDDEN_"
    del os.environ["PYTHONPATH"]
    for name in list(os.environ):
        if name.startswith(hidden):
            os.environ[name.removeprefix(hidden)] = os.environ.pop(name)
    sys.path.remove(_FOLDER)
    sys.path_importer_cache.pop(_FOLDER, None)
    sys.meta_path.insert(0, waiting)
    atexit.register(waiting.end)
    del sys.modules[__name__]
    __import__(__name__)  # the user's own, if there is one: `site` handles what it raises


if __name__ == "sitecustomize":
    _begin()
