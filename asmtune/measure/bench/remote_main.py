"""Main program of the agent on a remote host: runs processes there for a program elsewhere.

Run as `python -m asmtune.measure.bench.remote_main`, with JSON lines on stdin and stdout. It keeps
the arguments of a bench in memory of its host, starts the processes that time and compile, and
carries their messages. It ends, and they with it, when the program at the other end hangs up or
says nothing for a while. `python -m asmtune.measure.bench.remote_main probe` describes the host.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import queue
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TextIO

from asmtune.base.child import Child, ChildGoneError, die_with_parent, module_command, own_stdout
from asmtune.base.errors import AsmtuneError
from asmtune.base.fingerprint import versions

BEATS: Final = 12
"""Signs of life, in both directions, within the silence after which the other end is dead."""

_PROBE_S: Final = 120.0  # importing PyTorch takes a minute on a cold network disk
_POLL_S: Final = 5.0
_COMMANDS: Final = {
    "time": module_command("asmtune.measure.bench.child_main"),
    "compile": module_command("asmtune.compile.child_main"),
}


def probe_host() -> dict[str, Any]:
    """Return this host's versions, and its GPUs as their driver describes them."""
    import torch

    from asmtune.compile.toolchain import compiler_identity
    from asmtune.core.hardware.driver import read_attributes
    from asmtune.measure.timing.nvml import driver_version

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        **versions(),
        "python": platform.python_version(),
        "driver": driver_version(),
        "compiler": compiler_identity(),
        "cpus": len(os.sched_getaffinity(0)),
        "gpus": [
            {**read_attributes(index).to_json(), "uuid": gpu_uuid(index)} for index in range(count)
        ],
    }


def gpu_uuid(index: int) -> str:
    """Return what tells a GPU of this process from all others; "" if there is none."""
    import torch

    count = torch.cuda.device_count()
    return str(torch.cuda.get_device_properties(index).uuid) if index < count else ""


def _probe_in_child() -> dict[str, Any]:
    """Run `probe_host` in another process: this one keeps no CUDA context."""
    command = module_command("asmtune.measure.bench.remote_main", "probe")
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PROBE_S, check=False, stdin=subprocess.DEVNULL
        )
        described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"problem": f"PyTorch and the driver did not answer within {_PROBE_S:g} s"}
    except (ValueError, IndexError):
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return {"problem": lines[-1][:300] if lines else f"exit code {done.returncode}"}
    return described


class _Carried:
    """Carries messages between one child and the other end, and ends it when it is told to."""

    def __init__(self, number: int, child: Child, say: Callable[[Mapping[str, Any]], None]) -> None:
        self.child = child
        self._number = number
        self._say = say
        self._inbox: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._patience_s = 0.0
        for loop in (self._carry, self._feed):
            threading.Thread(target=loop, name=f"asmtune-child-{number}", daemon=True).start()

    def send(self, message: Mapping[str, Any] | None) -> None:
        """Send a message without waiting for a child that is slow to read; None is the last."""
        self._inbox.put(message)

    def end(self, patience_s: float) -> None:
        """End the child, after some seconds if it is about to end by itself."""
        self._patience_s = patience_s
        if not patience_s:
            self.child.stop()
        self.send(None)
        self._ending.set()

    def _feed(self) -> None:
        with suppress(ChildGoneError, ValueError):  # ValueError: its pipe is closed already
            while (message := self._inbox.get()) is not None:
                self.child.send(message)

    def _carry(self) -> None:
        while True:
            try:
                self._say({"child": self._number, "message": self.child.receive(_POLL_S)})
            except TimeoutError:
                continue
            except ChildGoneError:
                break
        self._say({"child": self._number, "gone": True})
        self._ending.wait()
        try:
            end = self.child.kill(self._patience_s)
        except AsmtuneError as error:
            self._say({"child": self._number, "refused": str(error)})
        else:
            self._say({"child": self._number, "ended": [end.code, end.last_line]})


class Agent:
    """Serves the program at the other end.

    Args:
        out: takes the answers.
        commands: what starts a process, by program: "time" and "compile".
        probe: describes this host.
    """

    def __init__(
        self,
        out: TextIO,
        commands: Mapping[str, Sequence[str]] = _COMMANDS,
        probe: Callable[[], Mapping[str, Any]] = _probe_in_child,
    ) -> None:
        self._out = out
        self._turn = threading.Lock()
        self._commands = commands
        self._probe = probe
        self._children: dict[int, _Carried] = {}
        self._files: dict[int, int] = {}
        self._heard = time.monotonic()

    def serve(self, silence_s: float) -> None:
        """Serve stdin until the other end hangs up; end this process if that is silent too long."""
        self._out.write("\n")  # ends a line that a shell's settings may have printed
        for loop in (lambda: self._beat(silence_s / BEATS), lambda: self._watch(silence_s)):
            threading.Thread(target=loop, name="asmtune-remote", daemon=True).start()
        answers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            # PyTorch may take longer than the other end may be silent.
            "probe": lambda _: threading.Thread(target=self._describe, daemon=True).start(),
            "beat": lambda _: None,
            "file": self._file,
            "bytes": self._bytes,
            "drop": lambda request: os.close(self._files.pop(request["file"])),
            "start": self._start,
            "send": self._send,
            "end": self._end,
        }
        for line in self._lines():
            request = json.loads(line)
            answers[request["do"]](request)
        self.stop()

    def _lines(self) -> Iterator[bytearray]:
        """Yield the lines of stdin; one that is cut off by its end is none."""
        partial = bytearray()
        while chunk := os.read(0, 1 << 20):
            self._heard = time.monotonic()  # a long line may take minutes
            partial += chunk
            if b"\n" in chunk:
                *lines, partial = partial.split(b"\n")
                yield from lines

    def _describe(self) -> None:
        self._say({"probe": self._probe()})

    def stop(self) -> None:
        """Kill all processes that were started."""
        for carried in list(self._children.values()):
            carried.child.stop()

    def _file(self, request: Mapping[str, Any]) -> None:
        from asmtune.measure.memory import nameless_file

        number = request["file"]
        try:
            self._files[number] = nameless_file(request["nbytes"])
        except AsmtuneError as error:
            self._say({"file": number, "refused": str(error)})
        else:
            self._say({"file": number})

    def _bytes(self, request: Mapping[str, Any]) -> None:
        data, at = zlib.decompress(base64.b64decode(request["zlib"])), request["at"]
        while data:
            written = os.pwrite(self._files[request["file"]], data, at)
            data, at = data[written:], at + written

    def _start(self, request: Mapping[str, Any]) -> None:
        from asmtune.measure.bench.gpu import environment

        number, file = request["child"], request["file"]
        try:
            variables = {**environment(request["gpu"]), **request["variables"]}
            variables = {name: text for name, text in variables.items() if text is not None}
            command = (*self._commands[request["program"]], *request["arguments"])
            child = Child(command, variables, () if file is None else (self._files[file],))
        except (AsmtuneError, OSError) as error:
            self._say({"child": number, "refused": str(error)})
        else:
            self._children[number] = _Carried(number, child, self._say)

    def _send(self, request: Mapping[str, Any]) -> None:
        carried, message = self._children.get(request["child"]), request["message"]
        if message.get("do") == "open":
            message["arguments"]["file"] = self._files[message["arguments"]["file"]]
        if carried is not None:
            carried.send(message)

    def _end(self, request: Mapping[str, Any]) -> None:
        carried = self._children.pop(request["child"], None)
        if carried is None:  # it could not be started
            self._say({"child": request["child"], "ended": [None, ""]})
        else:
            carried.end(request["patience_s"])

    def _beat(self, every_s: float) -> None:
        while True:
            self._say({"beat": True})
            time.sleep(every_s)

    def _watch(self, silence_s: float) -> None:
        while time.monotonic() - self._heard < silence_s:
            time.sleep(silence_s / BEATS)
        self.stop()
        os._exit(1)

    def _say(self, message: Mapping[str, Any]) -> None:
        with self._turn:
            try:
                self._out.write(json.dumps(message) + "\n")
                self._out.flush()
            except BrokenPipeError:
                self.stop()
                os._exit(1)


def main() -> None:
    """Serve, or describe this host."""
    if sys.argv[1:] == ["probe"]:
        print(json.dumps(probe_host()))  # noqa: T201 - the agent reads it
        return
    die_with_parent()
    Agent(own_stdout()).serve(float(sys.argv[1]))
    os._exit(0)


if __name__ == "__main__":
    main()
