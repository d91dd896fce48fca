"""Keys that a program meets: written to a file, tuned without the program, and counted."""

from __future__ import annotations

import base64
import importlib
import json
import os
import shutil
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from asmtune.base.errors import InputError
from asmtune.core.keys.rules import BucketRules
from asmtune.core.records.tuned import TuneKey
from asmtune.measure.bench.argument_codec import Packing
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.events import recording
from asmtune.runtime.offline.tuning_queue import RecordedKeys, TuningGpu
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.runtime.patching.redirect import patch
from asmtune.runtime.recording.key_file import (
    MOST_ELEMENTS,
    KeyFile,
    RecordedKey,
    add_keys,
    check_program,
    read_key_file,
)
from asmtune.runtime.recording.launches import load_kernel, make_arguments, recorded_request
from asmtune.runtime.recording.recorder import KeyRecorder, contents_of, recorded_key
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.tuner import Tuner
from tests.dispatch.host_gpu import EFFORT, HostGpu
from tests.tuning_support import DEVICE

SERVED = """
import triton
from tests.dispatch.host_gpu import copy
CONFIGS = [triton.Config({"BLOCK": block}) for block in (32, 128)]
copies = triton.heuristics({"scale": lambda values: values.get("scale", 1)})(
    triton.autotune(CONFIGS, key=["n"])(copy)
)
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a package that somebody else has written."""
    package = tmp_path / "served_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text(SERVED)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module("served_package.kernels")
    for name in ("served_package", "served_package.kernels"):
        sys.modules.pop(name, None)


def launch(served: Any, n: int, **given: Any) -> None:
    """Launch the module's kernel on n elements."""
    x, out = torch.arange(float(n)), torch.empty(n)
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    served.copies[grid](x, out, n, **given)
    assert torch.equal(out, x)


def record(path: Path, served: Any, *sizes: int, buckets: tuple[str, ...] = ()) -> KeyRecorder:
    """Run a program that launches the sizes, and record its keys."""
    recorder = KeyRecorder(path, "serve.py", buckets)
    with (
        patch(skip_tuning_below_us=None, effort=EFFORT, buckets=buckets),
        recording(recorder.launched),
    ):
        for n in sizes:
            launch(served, n)
    return recorder


@pytest.fixture
def recorded(gpu: HostGpu, served: Any, tmp_path: Path) -> RecordedKey:
    """The one key that a run has written to keys.json."""
    record(tmp_path / "keys.json", served, 64)
    (key,) = read_key_file(tmp_path / "keys.json").keys
    return key


def machine() -> TuningGpu:
    """A GPU in the host's memory."""
    return TuningGpu(DEVICE, "cpu", Tuner.open(DEVICE, TuneOptions.of({"effort": EFFORT})))


def test_keys_are_tuned_without_the_program(
    gpu: HostGpu, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded keys are tuned in another store, where the program then finds all of them."""
    path = tmp_path / "keys.json"
    recorder = record(path, served, 1024, 64, 1024)
    assert gpu.tuned == 2
    assert recorder.summary() == [
        f"2 of 2 keys met were new to {path}; `asmtune tune --from {path}` tunes them"
    ]
    (first, second) = read_key_file(path).keys
    assert (first.module, first.kernel) == (
        "served_package.kernels",
        "tests.dispatch.host_gpu.copy",
    )
    assert (first.shape, first.dtypes) == ({"n": 1024}, {"x_ptr": "fp32", "out_ptr": "fp32"})
    assert first.grid == {"reads": ["BLOCK"], "sizes": [[[32], [32, 1, 1]], [[128], [8, 1, 1]]]}
    assert first.positional == ("x_ptr", "out_ptr", "n")
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "other"))
    keys = RecordedKeys.of(path)
    results = list(keys.results(machine()))
    assert [result.outcome for result in results] == ["tuned", "tuned"]
    assert not keys.changed
    assert [result.request.key for result in results] == [first.key, second.key]
    assert not any(result.request.problem.arguments for result in results)
    assert gpu.tuned == 4
    recorder = record(path, served, 1024, 64)
    assert gpu.tuned == 4  # the store knows both
    assert recorder.summary() == [f"no new key was met; {path} has 2 keys"]


def test_rules_of_the_run_count_when_its_keys_are_tuned(
    gpu: HostGpu, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of a run with buckets are tuned under its buckets, each bucket once."""
    path = tmp_path / "keys.json"
    record(path, served, 1000, 900, 1024, buckets=("copy:pow2(n)",))
    assert gpu.tuned == 1
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "other"))
    (result,) = RecordedKeys.of(path, "copy").results(machine())
    assert result.request.key.shape == {"pow2(n)": 1024}
    record(path, served, 777, buckets=("copy:pow2(n)",))
    assert gpu.tuned == 2


def test_keys_that_are_only_traced(gpu: HostGpu, served: Any, tmp_path: Path) -> None:
    """A key that PyTorch's compiler describes is listed with what to do, until it is launched."""
    path = tmp_path / "keys.json"
    recorder = KeyRecorder(path, "serve.py")
    with patch(skip_tuning_below_us=None, effort=EFFORT), recording(recorder.launched):
        kernel = convert(served.copies.fn, {"skip_tuning_below_us": None, "effort": EFFORT})
        traced = {
            "x_ptr": torch.empty(64, device="meta"),
            "out_ptr": torch.empty(64, device="meta"),
        }
        for _ in range(2):
            kernel._chooser.look_up({}, {**traced, "n": 64})
        (key,) = read_key_file(path).keys
        assert key.problem.startswith("torch.compile traced it, which tells no grid: record a step")
        launch(served, 64)
    (key,) = read_key_file(path).keys
    assert key.problem == ""


def test_a_launch_that_raises_while_it_is_described(
    recorded: RecordedKey,
) -> None:
    """A grid that raises for some configs is kept for the others; for all, the key says why."""
    tuner = load_kernel(recorded, BucketRules())
    launched = {"x_ptr": torch.empty(4), "out_ptr": torch.empty(4), "n": 4}

    def described(most: int) -> RecordedKey:
        def grid(meta: dict[str, Any]) -> tuple[int]:
            if meta["BLOCK"] > most:
                raise RuntimeError(f"no block of {meta['BLOCK']}")
            return (len({**meta}),)

        request = tuner.request({}, launched, grid, DEVICE)
        return recorded_key(request, KernelCall(grid, (), launched, ()))

    some = described(32)
    assert some.problem == ""
    assert [at[some.grid["reads"].index("BLOCK")] for at, _ in some.grid["sizes"]] == [32]
    assert "num_warps" in some.grid["reads"]  # it has listed all values
    assert "RuntimeError: no block of 128" in described(16).problem


@pytest.mark.parametrize(
    ("values", "addresses"),
    [
        ([0x7F12_3400_0000, 0, 0x7F12_3400_0200], ["table"]),
        ([5, 0x7F12_3400_0000], []),
        ([1 << 50, 1 << 62], []),
        ([0, 0], []),
    ],
)
def test_addresses_are_no_contents(values: list[int], addresses: list[str]) -> None:
    """A tensor of addresses, as grouped products take, is known by where its values lie."""
    assert contents_of({"table": torch.tensor(values)})[1] == addresses


def test_processes_add_to_one_file(tmp_path: Path) -> None:
    """Processes and threads that write at the same time lose no key."""
    path = tmp_path / "keys.json"

    def add(n: int) -> None:
        key = RecordedKey("lib.k", "lib", None, {"n": n}, {}, DEVICE, "", "", problem="none")
        add_keys(path, KeyFile("serve.py", (), (key,)))

    children = []
    for first in (100, 200):
        child = os.fork()
        if child == 0:
            for n in range(first, first + 20):
                add(n)
            os._exit(0)
        children.append(child)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(20)))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    sizes = {key.shape["n"] for key in read_key_file(path).keys}
    assert sizes == {*range(20), *range(100, 120), *range(200, 220)}
    assert list(tmp_path.iterdir()) == [path]


def test_a_launch_that_can_be_made_again_replaces_one_that_cannot(tmp_path: Path) -> None:
    """Of the lines of a key the first without a problem counts; other rules begin a new head."""
    path = tmp_path / "keys.json"

    def add(n: int, *, problem: str = "none") -> None:
        key = RecordedKey("lib.k", "lib", None, {"n": n}, {}, DEVICE, "", "", problem=problem)
        add_keys(path, KeyFile("serve.py", (), (key,)))

    for n, problem in ((1, "none"), (2, "none"), (2, ""), (2, "later"), (1, "again")):
        add(n, problem=problem)
    keys = read_key_file(path).keys
    assert [(key.shape["n"], key.problem) for key in keys] == [(1, "again"), (2, "")]
    KeyRecorder(path, "serve.py", ("pow2(n)",))
    assert read_key_file(path) == KeyFile("serve.py", ("pow2(n)",), keys)


def test_a_file_that_cannot_be_written_stops_no_launch(
    gpu: HostGpu, served: Any, tmp_path: Path
) -> None:
    """Where the file cannot be written any more, a warning says so and the program goes on."""
    path = tmp_path / "gone" / "keys.json"
    path.parent.mkdir()
    recorder = KeyRecorder(path, "serve.py")
    shutil.rmtree(path.parent)
    with (
        pytest.warns(UserWarning, match="not recorded in .*No such file or directory.*goes on"),
        patch(skip_tuning_below_us=None, effort=EFFORT),
        recording(recorder.launched),
    ):
        launch(served, 64)


def odd_arguments() -> dict[str, Any]:
    """Arguments of many kinds: views of one storage, indices, infinities."""
    whole = torch.arange(96.0).reshape(8, 12)
    return {
        "left": whole[:, 1:5],
        "right": whole.t()[6:9],
        "index": torch.tensor([3, 1, 2], dtype=torch.int32),
        "mask": torch.tensor([[True, False], [True, True]]).t(),
        "empty": torch.empty(0, 4),
        "pairs": torch.zeros(3, dtype=torch.complex64),
        "narrow": torch.zeros(5, dtype=torch.float8_e4m3fn),
        "scale": float("-inf"),
        "sizes": (4, 5, torch.tensor([7], dtype=torch.int64)),
        "none": None,
        "flag": True,
    }


def test_arguments_are_made_again(recorded: RecordedKey, tmp_path: Path) -> None:
    """Dtypes, shapes, strides, alignment, shared memory, indices and values come back."""
    tuner = load_kernel(recorded, BucketRules())
    given = odd_arguments()
    launched = {"x_ptr": torch.empty(4), "out_ptr": torch.empty(4), "n": 4}
    request = tuner.request({}, launched, (1,), DEVICE)
    call = KernelCall((1,), (), given, ())
    described = recorded_key(request, call)
    add_keys(tmp_path / "odd.json", KeyFile("serve.py", (), (described,)))
    (back,) = read_key_file(tmp_path / "odd.json").keys
    assert back == replace(described, grid=back.grid, memory=back.memory, arguments=back.arguments)
    made = make_arguments(back, "cpu")
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            like = made[name]
            assert (like.dtype, like.shape, like.stride()) == (
                value.dtype,
                value.shape,
                value.stride(),
            )
            assert value.numel() == 0 or (like.data_ptr() - value.data_ptr()) % 512 == 0
    assert torch.equal(made["index"], given["index"])
    assert torch.equal(made["mask"], given["mask"])
    assert made["sizes"][:2] == (4, 5)
    assert made["sizes"][2].item() == 7
    assert (made["scale"], made["none"], made["flag"]) == (float("-inf"), None, True)
    left, right = made["left"].untyped_storage(), made["right"].untyped_storage()
    assert left.data_ptr() == right.data_ptr()
    assert float(made["left"].std()) > 0


def test_large_index_tensors_repeat_what_was_recorded(
    gpu: HostGpu, served: Any, tmp_path: Path
) -> None:
    """An integer tensor larger than what is kept holds recorded values only, all in its range."""
    table = torch.arange(1 << 17, dtype=torch.int64) % 50
    contents = json.loads(json.dumps(contents_of({"table": table})[0]))
    key = RecordedKey("k", "m", None, {}, {}, DEVICE, "", "", contents=contents)
    region = {"device": "cpu", "pinned": False, "first": 0, "bytes": table.nbytes, "at": 0}
    form = {"region": 0, "pointer": 0, "device": "cpu", "dtype": "int64"}
    tensor = {**form, "shape": [1 << 17], "strides": [1]}
    made = make_arguments(
        replace(key, arguments={"table": {"tensor": tensor}}, memory=(region,)), "cpu"
    )
    assert torch.equal(made["table"][: 1 << 16], table[: 1 << 16])
    assert int(made["table"].max()) < 50


HEAD = '{"format": "asmtune-keys", "version": 2, "program": "a", "buckets": [%s]}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"keys.json: No such file or directory; write it anew with `asmtune run --record"),
        ("", "no file of recorded keys"),
        ('{"format": "asmtune-keys", "version": 2}\n{"kern', "cut off or damaged"),
        ("[1, 2]", "no file of recorded keys"),
        ('{"format": "asmtune-trace", "version": 2}', "no file of recorded keys"),
        ('{"format": "asmtune-keys", "version": 3}', "version 3 of the format, and this asmtune"),
        ('{"format": "asmtune-keys", "version": 2, "program": "a"}', "'buckets' is missing"),
        (HEAD % "" + '{"kernel": 1}', r"keys\[0\]: field 'module' is missing"),
        (HEAD % '"pow3(n)"', "pow3 is no bucket"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str | None, message: str) -> None:
    """A file that is missing, cut off, of another kind or version is told in one line."""
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message) as raised:
        read_key_file(path)
    assert "\n" not in str(raised.value)


def test_a_file_of_another_program(tmp_path: Path) -> None:
    """A program adds no keys to a file of another program."""
    path = tmp_path / "keys.json"
    add_keys(path, KeyFile("serve.py"))
    assert check_program(path, "serve.py").keys == ()
    with pytest.raises(
        InputError, match=r"it holds keys of serve.py, and this program is train.py"
    ):
        KeyRecorder(path, "train.py")


def test_kernels_that_are_not_there(recorded: RecordedKey, tmp_path: Path) -> None:
    """Keys of kernels that cannot be imported, or have changed, are told; others are tuned."""
    key, path = recorded, tmp_path / "keys.json"
    absent = replace(key, kernel="absent_lib.k", module="absent_lib.ops", file=None)
    renamed = replace(key, kernel="served_package.kernels.former")
    other = replace(key, positional=("former", "n"), shape={"n": 65})
    add_keys(path, KeyFile("serve.py", (), (absent, renamed, other)))
    results = list(RecordedKeys.of(path).results(machine()))
    assert [result.outcome for result in results] == ["known", "failed", "failed", "failed"]
    assert "absent_lib.ops cannot be imported here" in results[1].error
    assert "install its package or put its folder on PYTHONPATH" in results[1].error
    assert "holds no autotuned kernel of this name" in results[2].error
    assert "another version of the program; record its keys again" in results[2].error
    assert "has other parameters now" in results[3].error
    for result in results:
        assert "\n" not in result.error
    with pytest.raises(InputError, match=r"no key of kernel cpy: the file has absent_lib.k, "):
        RecordedKeys.of(path, "cpy")
    with pytest.raises(InputError, match=r"keys .*: kernel absent_lib.k: .* cannot be imported"):
        RecordedKeys.of(path, "absent_lib.k")


DAMAGES: list[dict[str, Any]] = [
    {"grid": None},
    {"grid": {"reads": ["BLOCK"], "sizes": [[[32]]]}},
    {"memory": ()},
    {"arguments": {"x_ptr": {"tensor": {"pointer": 0}}}},
    {"contents": {"x_ptr": {"dtype": "i4", "zlib": "?"}}},
    {"arguments": {"x_ptr": {"function": "os:a\nb"}}},
]


def test_launches_that_are_damaged(recorded: RecordedKey) -> None:
    """A damaged launch is told in one line, and nothing is tuned."""
    tuner = load_kernel(recorded, BucketRules())
    for damage in DAMAGES:
        broken = replace(recorded, positional=(), **damage)
        with pytest.raises(InputError, match="the recorded launch is damaged") as raised:
            recorded_request(broken, tuner, DEVICE, "cpu")
        assert "\n" not in str(raised.value)


def test_contents_are_inflated_up_to_a_limit() -> None:
    """No more elements are made of a file's content than are ever recorded."""
    form = {"region": 0, "pointer": 0, "device": "cpu", "dtype": "int32"}
    tensor = {**form, "shape": [8], "strides": [1]}
    region = {"device": "cpu", "pinned": False, "first": 0, "bytes": 32}
    key = RecordedKey("k", "m", None, {}, {}, DEVICE, "", "", memory=(region,))
    for count, fits in ((MOST_ELEMENTS, True), (MOST_ELEMENTS + 1, False)):
        packed = base64.b64encode(zlib.compress(bytes(4 * count))).decode()
        launch = replace(
            key,
            arguments={"t": {"tensor": tensor}},
            contents={"t": {"dtype": "int32", "zlib": packed}},
        )
        if fits:
            assert make_arguments(launch, "cpu")["t"].tolist() == [0] * 8
        else:
            with pytest.raises(ValueError, match="too large: at most 262,144 bytes"):
                make_arguments(launch, "cpu")


def test_texts_of_many_lines(recorded: RecordedKey, tmp_path: Path) -> None:
    """Whatever text of a file has line breaks, what is said of its keys is one line."""
    path = tmp_path / "keys.json"
    head, line = path.read_text().splitlines()
    for name in ("kernel", "module", "file", "device", "problem", "dtypes"):
        text = "a\r\x1b[2Jb\u2028c\nd"
        value = {"x_ptr": text} if name == "dtypes" else text
        path.write_text(f"{head}\n{json.dumps({**json.loads(line), name: value})}\n")
        said: list[str] = []
        try:
            said = [result.error for result in RecordedKeys.of(path).results(machine())]
        except InputError as error:
            said = [str(error)]
        with pytest.raises(InputError) as raised:
            RecordedKeys.of(path, "absent")
        assert all(map(str.isprintable, [*said, str(raised.value)])), said


def test_kernels_that_no_module_holds(gpu: HostGpu, tmp_path: Path) -> None:
    """A kernel that a function made can be found by no other process, and its key says so."""
    path = tmp_path / "keys.json"
    recorder = KeyRecorder(path, "serve.py")

    @triton.jit
    def inner(x_ptr, out_ptr, n, scale, BLOCK: triton.language.constexpr):
        pass

    configs = [triton.Config({"BLOCK": block}) for block in (32, 128)]
    tuner = triton.autotune(configs, key=["n"])(inner)
    request = convert(tuner, {}).request({}, {"n": 8, "scale": 1}, (1,), DEVICE)
    recorder.launched(request, KernelCall((1,), (), {"n": 8, "scale": 1}, tuner.arg_names))
    (key,) = read_key_file(path).keys
    assert key.problem.startswith("a function made the kernel and no module holds it")
    _, told = recorder.summary()
    assert told.startswith("cannot be tuned from there: kernel ")
    assert told.endswith(key.problem)


def refuse(*_: Any) -> Any:
    """Describe nothing."""
    raise InputError("argument x: Odd cannot travel")


@pytest.mark.slow(seconds=1)
def test_arguments_that_cannot_be_recorded(
    gpu: HostGpu, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key whose arguments have no description is listed with the reason, until one has."""
    path = tmp_path / "keys.json"
    recorder = KeyRecorder(path, "serve.py")
    with (
        patch(skip_tuning_below_us=None, effort=EFFORT),
        recording(recorder.launched),
        monkeypatch.context() as patched,
    ):
        patched.setattr(Packing, "describe", refuse)
        launch(served, 64)
    (key,) = read_key_file(path).keys
    assert key.problem == "argument x: Odd cannot travel"
    (result,) = RecordedKeys.of(path).results(machine())
    assert result.error == "argument x: Odd cannot travel"
    assert isinstance(key.key, TuneKey)
    record(path, served, 64)
    (key,) = read_key_file(path).keys
    assert key.problem == ""
