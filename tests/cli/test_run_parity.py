"""Small programs, run by Python and by `asmtune run`: neither they nor who runs them can tell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ADDRESS = re.compile("0x[0-9a-f]+")
REPOSITORY = Path(__file__).parents[2]

TELLS = """
import gc, inspect, logging, os, signal, sys, threading, warnings
main = sys.modules["__main__"]
def f(): return inspect.stack(), sys._getframe(1).f_back
print(sys.argv, sys.orig_argv, sys.executable, sys.flags, sys.warnoptions, sys._xoptions)
print(sorted(vars(main)), vars(main) is globals())
for name in ("__name__", "__file__", "__package__", "__cached__", "__doc__", "__annotations__"):
    print(name, globals().get(name, "missing"))
print(__builtins__, type(__loader__), __spec__ and (__spec__.name, __spec__.origin))
print(sys.path, os.getcwd(), sorted(os.environ.items()))
print(sorted(sys.modules.keys() - {"atexit"}))
print([(one.filename, one.lineno, one.function) for one in f()[0]], f()[1])
print(sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold(), gc.isenabled())
print(warnings.filters, warnings.showwarning.__module__, logging.root.handlers, logging.root.level)
print([signal.getsignal(number) for number in range(1, 32)], signal.pthread_sigmask(0, []))
print(sys.excepthook, sys.unraisablehook, threading.excepthook, sys.gettrace(), sys.getprofile())
print(threading.enumerate() == [threading.main_thread()], threading.main_thread().name)
print([(s.name, s.encoding, s.errors, s.line_buffering) for s in (sys.stdin, sys.stdout)])
print(sorted(os.listdir("/proc/self/fd")))
"""
PACKAGE = {"package/__init__.py": "print(__name__)", "package/tells.py": TELLS}
FOLDER = {"folder/__main__.py": f"import beside\n{TELLS}", "folder/beside.py": ""}
RAISES = """
def outer():
    inner()
def inner():
    raise LookupError("lost")
"""
CHILDREN = """
import concurrent.futures, multiprocessing, os, sys
print(__name__, flush=True)
class Thing:
    value = os.path.basename(sys.argv[0])
def work(n):
    import inspect
    return n, Thing(), [frame.function for frame in inspect.stack()]
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(1) as pool:
        print([(n, type(thing) is Thing, stack) for n, thing, stack in pool.map(work, [1, 2])])
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        print(pool.submit(work, 3).result()[2])
    child = context.Process(target=sys.exit, args=(7,))
    child.start(); child.join(); print(child.exitcode)
"""


@dataclass(frozen=True)
class Small:
    """A small program, what is given to Python to run it, and how.

    A `{}` of a word is the folder of its files.
    """

    source: str = ""
    words: tuple[str, ...] = ("program.py",)
    files: dict[str, str | bytes] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    stdin: str = ""
    shell: str = 'exec "$@"'
    environment: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write its files."""
        for name, content in {"program.py": self.source, **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tells(*words: str, **options: object) -> Small:
    """A program that prints all that it can know."""
    return Small(TELLS, words or ("program.py", "--effort", "mine", "-m", "--", "-c"), **options)


FAST = {
    "tells": tells(),
    "tells -m": tells("-m", "package.tells", "--store", "mine", files=PACKAGE),
    "tells folder": tells("folder", "a", files=FOLDER),
    "absent": Small(words=("absent.py",)),
    "absent -m": Small(words=("-m", "absent_package.module")),
    "raises": Small(f"{RAISES}try:\n    outer()\nexcept LookupError:\n    1 / 0"),
    "syntax": Small("import os\nx = ("),
    "exit text": Small("import sys; sys.exit('no more')"),
    "annotations": Small(
        "import dataclasses, inspect\n@dataclasses.dataclass\nclass Args:\n    lr: float = 0.5\n"
        "print(inspect.signature(Args), dataclasses.fields(Args)[0].type)"
    ),
    "recursion": Small(
        "def f(n):\n    try:\n        return f(n + 1)\n"
        "    except RecursionError:\n        return n\n"
        "print(f(0))\ndef g(n): return n and g(n - 1)\nprint(g(960))\ng(10000)"
    ),
    "interrupt": Small("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('late')"),
}
"""Programs that every change is tried on."""

RUNS = {
    "tells flags": tells(options=("-O", "-W", "error::ImportWarning", "-X", "dev", "-b", "-u")),
    "tells variables": tells(
        environment={"PYTHONPATH": f"libs:{REPOSITORY}", "PYTHONHASHSEED": "3", "LC_ALL": "C"}
    ),
    "tells -c": tells("-c", TELLS, "--effort", "mine"),
    "tells stdin": tells("-", "-q", stdin=TELLS),
    "tells closed streams": tells(shell='exec "$@" 2>&-'),
    "tells moved": tells("../program.py", files={"inner/x": ""}, shell='cd inner; exec "$@"'),
    "option's name": tells("--", "-c", files={"-c": TELLS}),
    "module -m": tells("-m", "program", "-x"),
    "one that is started": Small(
        "import subprocess\nprint(sorted(subprocess.check_output('env').split()))"
    ),
    "isolated": Small(
        "import os, sys\nprint(sys.argv, sys.path, sys.warnoptions, sorted(os.environ.items()))\n"
        "print(sys.flags.safe_path, sys.flags.no_user_site, sys.flags.optimize)",
        options=("-I", "-O"),
        environment={"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONPATH": "libs"},
    ),
    "no variables": Small(
        "import os, sys\nprint(sys.path, sys.flags.safe_path, sorted(os.environ.items()))",
        options=("-E",),
        environment={"PYTHONSAFEPATH": "1", "PYTHONPATH": "libs"},
    ),
    "interactive": Small("x = 3", options=("-i",), stdin="print(x)\nraise SystemExit(4)\n"),
    "own names": Small(
        "import json, queue, typing, rich, asmtune\nprint(json.x, queue.x, typing.x, rich.x)\n"
        "print(asmtune.__file__)",
        files=dict.fromkeys(("json.py", "queue.py", "typing.py", "rich.py"), "x = 3"),
    ),
    "own sitecustomize": Small(
        "import sitecustomize, sys; print(sitecustomize.__file__, sys.mine)",
        files={"libs/sitecustomize.py": "import sys; sys.mine = sys.argv, list(sys.path)"},
        environment={"PYTHONPATH": f"libs:{REPOSITORY}"},
    ),
    "own bad sitecustomize": Small(
        "import sys; print('sitecustomize' in sys.modules)",
        files={"libs/sitecustomize.py": "import sys\nsys.argv == ['program.py'] and 1 / 0"},
        environment={"PYTHONPATH": f"libs:{REPOSITORY}"},
    ),
}
"""Ways to start a program."""

REFUSED = {
    "no main": Small(words=("folder",), files={"folder/x.py": ""}),
    "no main -m": Small(words=("-m", "package"), files=PACKAGE),
    "empty": Small(""),
}
"""What Python cannot run, or has nothing to do with."""

ENDS = {
    "exit number": Small("import sys; sys.exit(7)"),
    "exit in a thread": Small(
        "import sys, threading\n"
        "t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()"
    ),
    "terminated": Small("import os, signal\nos.kill(os.getpid(), 15); signal.pause()"),
    "handlers": Small(
        "import os, signal, sys\ndef stop(number, frame):\n    print(number, frame.f_back)\n"
        "    sys.exit(4)\nsignal.signal(15, stop); os.kill(os.getpid(), 15); signal.pause()"
    ),
    "ignored signals": Small(
        "import os, signal\n"
        "print(signal.getsignal(2), signal.getsignal(1)); os.kill(os.getpid(), 2)",
        shell="trap '' INT HUP; exec \"$@\"",
    ),
    "broken pipe": Small(
        "import os\nr, w = os.pipe(); os.close(r); os.dup2(w, 1); os.close(w)\nprint('x' * 9)"
    ),
    "atexit": Small(
        "import atexit, sys, threading, time, weakref\nclass C: pass\nc = C()\n"
        "weakref.finalize(c, print, 'finalised')\natexit.register(print, 'first')\n"
        "atexit.register(lambda: print(sys.modules['__main__'].c is c))\n"
        "atexit.register(lambda: 1 / 0)\nC.__del__ = lambda self: print('deleted')\n"
        "def late():\n    threading.main_thread().join(); time.sleep(.1); print('late')\n"
        "threading.Thread(target=late).start()\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    ),
    "exit at exit": Small("import atexit, os\natexit.register(os._exit, 6)"),
    "hooks": Small(
        "import sys, threading\n"
        "sys.excepthook = lambda kind, e, t: print(kind, t.tb_next, t.tb_lineno)\n"
        "threading.excepthook = lambda a: print(a.exc_type, a.thread.name)\n"
        "sys.unraisablehook = lambda a: print(a.exc_type, a.err_msg)\n"
        "class C:\n    def __del__(self): raise KeyError\nC()\n"
        "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()\nraise ValueError"
    ),
    "forks": Small(
        "import atexit, os, sys\natexit.register(lambda: print('bye', flush=True))\n"
        "if os.fork() == 0:\n    sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    ),
}
"""Ways to end."""

LOOKS = {
    "stacks": Small(
        "import faulthandler, inspect, sys, traceback\ndef f():\n    traceback.print_stack()\n"
        "    faulthandler.dump_traceback(all_threads=True)\n    print(len(inspect.stack()))\n"
        "    try:\n        sys._getframe(2)\n    except ValueError as e:\n        print(e)\n"
        "f()\nprint(faulthandler.is_enabled())"
    ),
    "warnings": Small(
        "import warnings\ndef f(level):\n    warnings.warn('look', stacklevel=level)\n"
        "for level in (1, 2, 3, 9): f(level)\nwarnings.warn('old', DeprecationWarning)\n"
        "print(__warningregistry__, '\\d')"
    ),
    "find triton": Small(
        "import importlib.util, sys\nspec = importlib.util.find_spec('triton')\n"
        "print(spec.name, spec.origin, type(spec.loader), 'triton' in sys.modules)"
    ),
    "interprets": Small(
        "import os\nos.environ['TRITON_INTERPRET'] = '1'\nimport triton\n"
        "@triton.jit\ndef f(x): pass\nprint(type(f), triton.__spec__.loader, dir(triton))"
    ),
    "own triton": Small(
        "import triton\nprint(triton.__file__)", files={"triton.py": "def autotune(): pass"}
    ),
    "bad triton": Small("import triton.x", files={"triton/__init__.py": "x = 3"}),
    "failing triton": Small("import triton.x", files={"triton.py": RAISES + "outer()"}),
    "missing triton": Small("import triton", files={"triton.py": "import absent_module"}),
    "source of a kernel": Small(
        "import inspect, os, triton, triton.language as tl\n@triton.jit\n"
        "def k(x, n: int, B: tl.constexpr):\n    pass\nos.chdir('/')\n"
        "print(k.src, k.params[1].annotation, k.params[2].is_constexpr, k.__module__)"
    ),
    "fork": Small(CHILDREN, ("program.py", "fork")),
    "spawn": Small(CHILDREN, ("program.py", "spawn")),
    "forkserver": Small(CHILDREN, ("program.py", "forkserver")),
    "spawn -m": Small(CHILDREN, ("-m", "program", "spawn")),
}
"""What programs see of themselves, and of Python."""

SLOW = {**RUNS, **REFUSED, **ENDS, **LOOKS}


def both(small: Small, folder: Path) -> list[tuple[int | str, ...]]:
    """Run a program by Python and by `asmtune run`; return exit codes, stdout and stderr."""
    small.write(folder)
    words = [word.replace("{}", str(folder)) for word in small.words]
    started = [
        subprocess.Popen(
            ["sh", "-c", small.shell, "sh", sys.executable, *small.options, *command, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **small.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for command in ((), (str(Path(sys.executable).with_name("asmtune")), "run"))
    ]
    printed = [process.communicate(small.stdin.encode(), timeout=60) for process in started]
    told = [[ADDRESS.sub("0x", text.decode(errors="replace")) for text in pair] for pair in printed]
    return [(process.returncode, *pair) for process, pair in zip(started, told, strict=True)]


@pytest.mark.parametrize(
    "name",
    [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)],
)
def test_a_program_cannot_tell(name: str, tmp_path: Path) -> None:
    """Its output, errors and exit code are the same to the byte."""
    plain, ran = both({**FAST, **SLOW}[name], tmp_path)
    assert ran == plain
