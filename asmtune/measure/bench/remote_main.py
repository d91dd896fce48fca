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
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from asmtune.base.child import Child, ChildGoneError, die_with_parent, module_command, own_stdout
from asmtune.base.errors import AsmtuneError
from asmtune.base.fingerprint import versions

BEAT_S: Final = 5.0
"""Seconds between two signs of life, in both directions."""

_PROBE_S: Final = 120.0  # importing PyTorch takes a minute on a cold network disk
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
        "gpus": [read_attributes(index).to_json() for index in range(count)],
    }


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
    """Carries what one child says to the other end, and ends it when it is told to."""

    def __init__(self, number: int, child: Child, say: Callable[[Mapping[str, Any]], None]) -> None:
        self.child = child
        self._number = number
        self._say = say
        self._ending = threading.Event()
        self._patience_s = 0.0
        threading.Thread(target=self._carry, name=f"asmtune-child-{number}", daemon=True).start()

    def end(self, patience_s: float) -> None:
        """End the child, after some seconds if it is about to end by itself."""
        self._patience_s = patience_s
        if not patience_s:
            self.child.stop()
        self._ending.set()

    def _carry(self) -> None:
        while True:
            try:
                self._say({"child": self._number, "message": self.child.receive(BEAT_S)})
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

    def serve(self, lines: Iterable[str], silence_s: float) -> None:
        """Serve until the other end hangs up; end this process if it is silent for too long."""
        for loop in (self._beat, lambda: self._watch(silence_s)):
            threading.Thread(target=loop, name="asmtune-remote", daemon=True).start()
        answers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "probe": lambda _: self._say({"probe": self._probe()}),
            "beat": lambda _: None,
            "file": self._file,
            "bytes": self._bytes,
            "drop": lambda request: os.close(self._files.pop(request["file"])),
            "start": self._start,
            "send": self._send,
            "end": lambda request: self._children.pop(request["child"]).end(request["patience_s"]),
        }
        for line in lines:
            self._heard = time.monotonic()
            request = json.loads(line)
            answers[request["do"]](request)
        self.stop()

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
            try:
                carried.child.send(message)
            except ChildGoneError:
                return  # what carries its messages says so

    def _beat(self) -> None:
        while True:
            self._say({"beat": True})
            time.sleep(BEAT_S)

    def _watch(self, silence_s: float) -> None:
        while time.monotonic() - self._heard < silence_s:
            time.sleep(min(BEAT_S, silence_s / 4))
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
    Agent(own_stdout()).serve(sys.stdin, float(sys.argv[1]))
    os._exit(0)


if __name__ == "__main__":
    main()
