"""`asmtune export` and `asmtune import`: files for other programs and stores."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from typer.testing import CliRunner

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.app import app
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store.database import Store
from asmtune.store.interchange import shipped_records

MATMUL = "pkg.matmul"
H200, B200 = "NVIDIA H200", "NVIDIA B200"


def record(
    shape: Mapping[str, Any],
    *configs: Config,
    kernel: str = MATMUL,
    device: str = H200,
    dtypes: Mapping[str, str] | None = None,
) -> TuneRecord:
    """A record whose configs are timed in their order, the first the fastest."""
    timings = [
        Measurement(config, float(us), us - 0.5, us + 0.5, (float(us),))
        for us, config in enumerate(configs, 1)
    ]
    return TuneRecord(
        TuneKey(kernel, dict(shape), dict(dtypes or {"a": "fp16"}), device),
        configs[0],
        tuple(timings),
        Provenance("s", "p", "3.6.0", "2.11.0", "0.1.0", "570", "2025-03-01"),
    )


def block(size: int, **options: Any) -> Config:
    """A config of one axis."""
    return Config({"BLOCK": size}, **options)


RECORDS = (
    record({"M": 16, "causal": True}, block(16, num_warps=2), block(32)),
    record({"M": 4096, "causal": True}, block(128, num_warps=8, maxnreg=168), block(64)),
    record({"M": 4096, "causal": False}, block(256, num_ctas=2)),
    record({"M": 4096, "causal": True}, block(64, num_stages=5), device=B200),
    record({"M": 4096, "causal": True}, block(512), dtypes={"a": "fp32"}),
    record({"pow2(n)": 1024, "flag": None}, block(1024), kernel="pkg.softmax"),
    record({}, block(8), kernel="pkg.constant"),
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the commands look for the store."""
    monkeypatch.setenv("ASMTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ASMTUNE_STORE_URL", raising=False)
    return tmp_path / "cache"


def store(*records: TuneRecord) -> None:
    """Fill the store."""
    with Store.open(Settings.from_environment().store_where) as opened:
        opened.save_all(records)


def run(*arguments: object) -> Any:
    """Run a command, which is to succeed."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None, result.exception
    return result


def refused(*arguments: object) -> str:
    """Return the one line of a command that is refused, with nothing on stdout."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert isinstance(result.exception, InputError), result.output
    assert result.stdout == ""
    assert "\n" not in str(result.exception)
    return str(result.exception)


def place(key: TuneKey) -> tuple[Any, ...]:
    """Return what tells keys apart."""
    return (key.kernel, *sorted(key.dtypes.items()), key.device, *sorted(key.shape.items()))


def executed(path: Path) -> dict[str, Any]:
    """Run a file's code, and return its names."""
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def test_round_trip(cache: Path, tmp_path: Path) -> None:
    """JSON is read back as records of the same keys and configs."""
    store(*RECORDS)
    path = tmp_path / "out.json"
    run("export", path, "--format", "json", "--fastest", 1)
    run("cache", "clear", "--yes")
    assert f"imported 7 records from {path}" in run("import", path).stdout
    with Store.open(cache / "store.sqlite") as opened:
        found = {place(one.key): one.winner for one in opened.records()}
    assert found == {place(one.key): one.winner for one in RECORDS}


def test_lists_are_for_triton(cache: Path, tmp_path: Path) -> None:
    """The Python file has lists of `triton.Config` for `configs=` of `triton.autotune`."""
    store(*RECORDS)
    run("export", tmp_path / "out.py", "--format", "python", "--fastest", 2)
    configs = executed(tmp_path / "out.py")["configs"]
    listed = configs(MATMUL, H200)
    assert all(isinstance(config, triton.Config) for config in listed)
    found = {config.kwargs["BLOCK"]: config for config in listed}
    assert sorted(found) == [16, 32, 64, 128, 256, 512]
    assert len(listed) == len(found)
    assert (found[128].num_warps, found[128].maxnreg, found[256].num_ctas) == (8, 168, 2)
    assert len(configs(MATMUL)) == 7, "that of a B200 has five stages"

    @triton.autotune(configs=listed, key=["n"])
    @triton.jit
    def kernel(n, BLOCK):
        pass

    assert kernel.configs == listed
    with pytest.raises(LookupError, match=r"no config of kernel 'pkg\.other'"):
        configs("pkg.other")


def test_values_are_those_of_a_kernel(cache: Path, tmp_path: Path) -> None:
    """Dtypes are values in the file; a tuple, which a store holds as text, is refused."""
    config = Config({"DTYPE": tl.float16, "WIDE": tl.float8e4nv, "MODE": "(1, no tuple"})
    store(record({"M": 1}, config), record({"M": 2}, Config({"TILE": (2, 8)}), kernel="pkg.tiled"))
    path = tmp_path / "out.py"
    run("export", path, "--format", "python", "--kernel", MATMUL)
    names = executed(path)
    assert names["config"](MATMUL, {"a": "fp16"}, H200, {"M": 1}, strict=True) == config.values()
    assert [one.kwargs for one in names["configs"](MATMUL)] == [dict(config.kwargs)]
    assert "the tuple (2, 8)" in refused("export", path, "--format", "python")


def test_files_need_no_asmtune(cache: Path, tmp_path: Path) -> None:
    """The file imports without asmtune, Triton and PyTorch."""
    store(*RECORDS)
    run("export", tmp_path / "out.py", "--format", "python")
    code = "import sys; sys.modules.update(dict.fromkeys(('asmtune', 'triton', 'torch')));"
    code += f"import out; out.config('pkg.constant', {{'a': 'fp16'}}, {H200!r}, {{}})"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)


def test_function_of_the_key(cache: Path, tmp_path: Path) -> None:
    """The function gives each stored key its config, as keywords of a launch."""
    store(*RECORDS)
    run("export", tmp_path / "out.py", "--format", "python")
    config = executed(tmp_path / "out.py")["config"]
    for one in RECORDS[:5]:
        key = one.key
        given = config(key.kernel, key.dtypes, key.device, key.shape, strict=True)
        assert given == one.winner.to_dict()
        given["BLOCK"] = 0  # a caller may change what it got
        assert config(key.kernel, key.dtypes, key.device, key.shape) == one.winner.to_dict()
    softmax = ("pkg.softmax", {"a": "fp16"}, H200)
    for n in (513, 777, 1024):  # a bucket is a range of its argument
        assert config(*softmax, {"n": n, "flag": None}, strict=True) == block(1024).to_dict()
    assert config("pkg.constant", {"a": "fp16"}, H200, {}) == block(8).to_dict()


def test_function_of_buckets(cache: Path, tmp_path: Path) -> None:
    """A kernel's buckets are named apart from another kernel's; NumPy's numbers and None serve."""
    store(
        record({"pow2(n)": 1024}, block(16), kernel="a"),
        record({"pow2(n)": None}, block(32), kernel="a"),
        record({"pow2(n)": 512, "n": 300}, block(64), kernel="b"),
    )
    run("export", tmp_path / "out.py", "--format", "python")
    config = executed(tmp_path / "out.py")["config"]
    at = ({"a": "fp16"}, H200)
    for n in (777, np.int64(777)):
        assert config("a", *at, {"n": n}, strict=True)["BLOCK"] == 16
    assert config("a", *at, {"n": np.int64(5)})["BLOCK"] == 16
    assert config("a", *at, {"n": None}, strict=True)["BLOCK"] == 32
    assert config("b", *at, {"pow2(n)": 512, "n": np.int64(300)}, strict=True)["BLOCK"] == 64
    with pytest.raises(LookupError, match="no config is stored for shape"):
        config("a", *at, {"n": "777"})


def test_function_of_another_key(cache: Path, tmp_path: Path) -> None:
    """A shape that is not stored gets the nearest one's config, or raises; other keys raise.

    Names and values that mean something in Python are data in the file.
    """
    odd = TuneKey('a"""\n{x}\\', {'n"]': 'v"\n', "µ": 1.5}, {"x'": "fp16"}, "GPU {0}\n'")
    spelt = Config({"MODE": "it's\n{}", "EVEN": False, "SCALE": -1e-300})
    edited = record({"M": 1}, block(16, ir_override="a.ttgir"))
    store(edited)
    assert "hand-edited IR" in refused("export", tmp_path / "a.py", "--format", "python")
    store(replace(record({}, spelt), key=odd), *RECORDS)
    assert "1 left out" in run("export", tmp_path / "out.py", "--format", "python").stderr
    config = executed(tmp_path / "out.py")["config"]
    assert config(odd.kernel, odd.dtypes, odd.device, odd.shape, strict=True) == spelt.to_dict()
    at = (MATMUL, {"a": "fp16"}, H200)
    assert config(*at, {"M": 37, "causal": True})["BLOCK"] == 16
    assert config(*at, {"M": 900, "causal": True})["BLOCK"] == 128
    assert config(*at, {"M": 1, "causal": False})["BLOCK"] == 256
    assert config("pkg.softmax", {"a": "fp16"}, H200, {"n": 5, "flag": None})["BLOCK"] == 1024
    for shape, strict in (
        ({"M": 37, "causal": True}, True),
        ({"M": 37, "causal": "yes"}, False),
        ({"M": 37}, False),
        ({"M": 37, "causal": True, "K": 1}, False),
    ):
        with pytest.raises(LookupError, match="no config is stored for shape"):
            config(*at, shape, strict=strict)
    for key in (("pkg.x", {"a": "fp16"}, H200), (MATMUL, {}, H200), (MATMUL, {"a": "fp16"}, "X")):
        with pytest.raises(LookupError, match="no config is stored for kernel"):
            config(*key, {"M": 16, "causal": True})


def test_what_cannot_be_exported_or_read(cache: Path, tmp_path: Path) -> None:
    """An empty store, a missing file and a bad place each give one line."""
    form = ("--format", "python")
    assert "--shipped takes" in refused("export", tmp_path / "a", *form)
    store(*RECORDS)
    assert "no such folder" in refused("export", tmp_path / "no" / "a.py", *form)
    (tmp_path / "file").write_text("")
    assert "with M=1" in refused("export", tmp_path / "a", *form, "--only", "M=1")
    assert "No such file" in refused("import", tmp_path / "none.json")
    (tmp_path / "newer.json").write_text(
        '{"format": "asmtune-tuned", "version": 99, "records": []}'
    )
    for name, says in (("file", "not JSON"), ("newer.json", "99")):
        line = refused("import", tmp_path / name)
        assert name in line
        assert says in line


def test_shipped_configs(cache: Path, tmp_path: Path) -> None:
    """--shipped exports what comes with asmtune; a stored key is there once, as stored."""
    kernel = "asmtune.kernels.softmax.kernel"
    command = ("export", tmp_path / "a.py", "--format", "python", "--shipped", "--kernel", kernel)
    count = int(run(*command).stdout.split()[1])
    key = next(one.key for one in shipped_records() if one.key.kernel == kernel)
    store(replace(record({}, block(7)), key=key))
    assert int(run(*command).stdout.split()[1]) == count
    rows = executed(tmp_path / "a.py")["RECORDS"]
    assert [row[4] for row in rows].count([block(7).to_dict()]) == 1


def test_the_last_tuned_of_several_tritons(cache: Path, tmp_path: Path) -> None:
    """A key that two Tritons have tuned has one config in Python's form: the later."""
    old, new = record({"M": 16}, block(16)), record({"M": 16}, block(32))
    later = {"triton": "3.8.0", "date": "2025-03-02"}
    store(replace(new, provenance=replace(new.provenance, **later)), old)
    run("export", tmp_path / "out.py", "--format", "python")
    config = executed(tmp_path / "out.py")["config"]
    assert config(MATMUL, {"a": "fp16"}, H200, {"M": 16}) == block(32).to_dict()
