"""Keys that a program meets: written to a file, and tuned without the program."""

from __future__ import annotations

import base64
import importlib
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
from asmtune.runtime.calls import KernelCall
from asmtune.runtime.events import recording
from asmtune.runtime.key_recorder import KeyRecorder, RecordWarning, contents_of, recorded_key
from asmtune.runtime.offline.recorded_keys import (
    MOST_ELEMENTS,
    RecordedKey,
    RecordedKeys,
    add_keys,
    load_kernel,
    make_arguments,
    read_keys,
    recorded_request,
)
from asmtune.runtime.offline.tuning_queue import TuningGpu
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.runtime.patching.redirect import patch
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
BARE = RecordedKey(
    kernel="lib.k",
    module="lib",
    file=None,
    shape={},
    dtypes={},
    device=DEVICE,
    source="",
    buckets=(),
    positional=(),
    arguments={},
    memory=(),
    contents={},
    grid=None,
)


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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where keys are written."""
    return tmp_path / "keys.json"


def launch(served: Any, n: int) -> None:
    """Launch the module's kernel on n elements."""
    x, out = torch.arange(float(n)), torch.empty(n)
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    served.copies[grid](x, out, n)
    assert torch.equal(out, x)


def record(path: Path, served: Any, *sizes: int, buckets: tuple[str, ...] = ()) -> KeyRecorder:
    """Run a program that launches the sizes, and record its keys."""
    recorder = KeyRecorder(path, buckets)
    with (
        patch(skip_tuning_below_us=None, effort=EFFORT, buckets=buckets),
        recording(recorder.launched),
    ):
        for n in sizes:
            launch(served, n)
    return recorder


@pytest.fixture
def recorded(gpu: HostGpu, served: Any, path: Path) -> RecordedKey:
    """The one key that a run has written to keys.json."""
    record(path, served, 64)
    (key,) = read_keys(path)
    return key


def machine() -> TuningGpu:
    """A GPU in the host's memory."""
    return TuningGpu(DEVICE, "cpu", Tuner.open(DEVICE, TuneOptions.of({"effort": EFFORT})))


def test_keys_are_tuned_without_the_program(
    gpu: HostGpu, served: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded keys are tuned in another store, where the program then finds all of them."""
    recorder = record(path, served, 1024, 64, 1024)
    assert gpu.tuned == 2
    assert recorder.summary() == (
        f"2 of 2 keys met were new to {path}; `asmtune tune --from {path}` tunes them"
    )
    (first, second) = read_keys(path)
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
    assert [result.request.key for result in results] == [first.key(DEVICE), second.key(DEVICE)]
    assert not any(result.request.problem.arguments for result in results)
    assert gpu.tuned == 4
    recorder = record(path, served, 1024, 64)
    assert gpu.tuned == 4  # the store knows both
    assert recorder.summary() == f"no new key was met; {path} has 2 keys"


def test_rules_of_the_run_count_when_its_keys_are_tuned(
    gpu: HostGpu, served: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of a run with buckets are tuned under its buckets, each bucket once."""
    record(path, served, 1000, 900, 1024, buckets=("copy:pow2(n)",))
    assert gpu.tuned == 1
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "other"))
    (result,) = RecordedKeys.of(path, "copy").results(machine())
    assert result.request.key.shape == {"pow2(n)": 1024}
    record(path, served, 777, buckets=("copy:pow2(n)",))
    assert gpu.tuned == 2


def test_a_grid_that_raises_for_some_configs(recorded: RecordedKey) -> None:
    """A grid that raises for some configs is kept for the others; for all, nothing is recorded."""
    tuner = load_kernel(recorded)
    launched = {"x_ptr": torch.empty(4), "out_ptr": torch.empty(4), "n": 4}

    def described(most: int) -> RecordedKey:
        def grid(meta: dict[str, Any]) -> tuple[int]:
            if meta["BLOCK"] > most:
                raise RuntimeError(f"no block of {meta['BLOCK']}")
            return (len({**meta}),)

        request = tuner.request({}, launched, grid, DEVICE)
        return recorded_key(request, KernelCall(grid, (), launched, ()))

    some = described(32)
    assert [at[some.grid["reads"].index("BLOCK")] for at, _ in some.grid["sizes"]] == [32]
    assert "num_warps" in some.grid["reads"]  # it has listed all values
    request = recorded_request(some, tuner, DEVICE)
    small, large = request.configs()
    assert request.problem.grid_at(small, request.problem.bind(small))[1:] == (1, 1)
    with pytest.raises(InputError, match="no grid was recorded at BLOCK=128"):
        request.problem.grid(request.problem.bind(large))
    with pytest.raises(InputError, match="RuntimeError: no block of 32"):
        described(16)


@pytest.mark.parametrize(
    ("values", "is_address"),
    [
        ([0x7F12_3400_0000, 0, 0x7F12_3400_0200], True),
        ([5, 0x7F12_3400_0000], False),
        ([1 << 50, 1 << 62], False),
        ([0, 0], False),
    ],
)
def test_addresses_are_no_contents(values: list[int], is_address: bool) -> None:
    """A tensor of addresses, as grouped products take, is known by where its values lie."""
    table = {"table": torch.tensor(values)}
    if is_address:
        with pytest.raises(InputError, match="argument table holds addresses"):
            contents_of(table)
    else:
        assert contents_of(table).keys() == {"table"}


def test_processes_add_to_one_file(path: Path) -> None:
    """Processes and threads that write at the same time lose no key, and each counts once."""

    def add(n: int) -> None:
        add_keys(path, [replace(BARE, shape={"n": n})])

    children = []
    for first in (100, 110):
        child = os.fork()
        if child == 0:
            for n in range(first, first + 20):
                add(n)
            os._exit(0)
        children.append(child)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(20)))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    sizes = sorted(key.shape["n"] for key in read_keys(path))
    assert sizes == [*range(20), *range(100, 130)]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_written_stops_no_launch(
    gpu: HostGpu, served: Any, tmp_path: Path
) -> None:
    """Where the file cannot be written any more, a warning says so and the program goes on."""
    path = tmp_path / "gone" / "keys.json"
    path.parent.mkdir()
    recorder = KeyRecorder(path)
    shutil.rmtree(path.parent)
    with (
        pytest.warns(RecordWarning, match="not recorded in .*No such file or directory.*goes on"),
        patch(skip_tuning_below_us=None, effort=EFFORT),
        recording(recorder.launched),
    ):
        launch(served, 64)
    assert recorder.summary().startswith("no new key was met")


def test_arguments_are_made_again(recorded: RecordedKey, path: Path) -> None:
    """Dtypes, shapes, strides, alignment, shared memory, indices and values come back."""
    tuner = load_kernel(recorded)
    whole = torch.arange(96.0).reshape(8, 12)
    given = {
        "left": whole[:, 1:5],
        "right": whole.t()[6:9],
        "index": torch.tensor([3, 1, 2], dtype=torch.int32),
        "mask": torch.tensor([[True, False], [True, True]]).t(),
        "empty": torch.empty(0, 4),
        "pairs": torch.zeros(3, dtype=torch.complex64),
        "narrow": torch.zeros(5, dtype=torch.float8_e4m3fn),
        "scale": float("-inf"),
        "sizes": (4, 5, torch.tensor([7], dtype=torch.int64)),
        "function": tuner.fn,
        "none": None,
        "flag": True,
    }
    launched = {"x_ptr": torch.empty(4), "out_ptr": torch.empty(4), "n": 4}
    request = tuner.request({}, launched, (1,), DEVICE)
    path.unlink()
    add_keys(path, [recorded_key(request, KernelCall((1,), (), given, ()))])
    (back,) = read_keys(path)
    made = make_arguments(back)
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
    assert made["function"] is given["function"]
    left, right = made["left"].untyped_storage(), made["right"].untyped_storage()
    assert left.data_ptr() == right.data_ptr()
    assert float(made["left"].std()) > 0
    assert float(made["narrow"].float().std()) > 0
    assert float(made["pairs"].real.std()) > 0


UNREADABLE = (
    *('{"format": "asmtune-key 3"}\n{"kern', "[1, 2]", '{"format": "asmtune-key 4"}'),
    '{"format": "asmtune-key 3", "kernel": 1}',
)


def test_files_that_cannot_be_read(path: Path) -> None:
    """A file that is missing, cut off, of another kind or version is refused in one line."""
    for content in (None, *UNREADABLE):
        if content is not None:
            path.write_text(content)
        with pytest.raises(InputError, match=path.name) as raised:
            read_keys(path)
        assert "\n" not in str(raised.value)


def test_kernels_that_are_not_there(recorded: RecordedKey, path: Path) -> None:
    """Keys of kernels that cannot be imported, or have changed, fail; others are tuned."""
    absent = replace(recorded, kernel="absent_lib.k", module="absent_lib.ops", file=None)
    renamed = replace(recorded, kernel="served_package.kernels.former")
    other = replace(recorded, positional=("former", "n"), shape={"n": 65})
    add_keys(path, (absent, renamed, other))
    results = list(RecordedKeys.of(path).results(machine()))
    assert [result.outcome for result in results] == ["known", "failed", "failed", "failed"]
    assert "absent_lib.ops cannot be imported here" in results[1].error
    assert "holds no autotuned kernel of this name" in results[2].error
    assert "has other parameters now" in results[3].error
    for result in results:
        assert "\n" not in result.error
    with pytest.raises(InputError, match=r"no key of kernel cpy: the file has absent_lib.k, "):
        RecordedKeys.of(path, "cpy")


TOO_LARGE = base64.b64encode(zlib.compress(bytes(4 * (MOST_ELEMENTS + 1)))).decode()
DAMAGES: list[dict[str, Any]] = [
    {"grid": None},
    {"grid": {"reads": ["BLOCK"], "sizes": [[[32]]]}},
    {"memory": ()},
    {"arguments": {"x_ptr": {"tensor": {"pointer": 0}}}},
    {"contents": {"x_ptr": {"dtype": "i4", "zlib": "?"}}},
    {"contents": {"x_ptr": {"dtype": "int32", "zlib": TOO_LARGE}}},
    {"arguments": {"x_ptr": {"function": "os:a\nb"}}},
]


def test_launches_that_are_damaged(recorded: RecordedKey) -> None:
    """A damaged launch is refused in one line, and nothing is tuned."""
    tuner = load_kernel(recorded)
    for damage in DAMAGES:
        broken = replace(recorded, positional=(), **damage)
        with pytest.raises(InputError, match="the recorded launch is damaged") as raised:
            recorded_request(broken, tuner, DEVICE)
        assert "\n" not in str(raised.value)


def test_a_launch_that_cannot_be_recorded(path: Path) -> None:
    """A kernel that no module holds is warned of, and its launch goes on."""
    recorder = KeyRecorder(path)

    @triton.jit
    def inner(x_ptr, out_ptr, n, scale, BLOCK: triton.language.constexpr):
        pass

    configs = [triton.Config({"BLOCK": block}) for block in (32, 128)]
    tuner = triton.autotune(configs, key=["n"])(inner)
    request = convert(tuner, {}).request({}, {"n": 8, "scale": 1}, (1,), DEVICE)
    with pytest.warns(RecordWarning, match="no module holds the kernel"):
        recorder.launched(request, KernelCall((1,), (), {"n": 8, "scale": 1}, tuner.arg_names))
    assert read_keys(path) == ()
