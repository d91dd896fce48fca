"""Hardware descriptors: the shipped figures, loading, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asmtune
from asmtune.base.errors import InputError, TargetError
from asmtune.core.hardware import devices
from asmtune.core.hardware.model import Figure, Target
from asmtune.core.hardware.shipped import (
    KINDS,
    load_target,
    match_device,
    parse_target,
    target_names,
)

NAMES = ("A100", "B200", "H100", "H200", "L4", "RTX4090", "RTX5090")
AMD = ("MI250X", "MI300A", "MI300X", "MI325X", "MI350X", "MI355X")
FOLDER = Path(devices.__file__).parent
PACKAGE = Path(asmtune.__file__).parent
NUMERIC = [
    f.name
    for f in dataclasses.fields(Target)
    if str(f.type) in ("int", "float", "int | None", "float | None")
]
REQUIRED = [
    f.name
    for f in dataclasses.fields(Target)
    if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
]


def descriptor(**changes: Any) -> dict[str, Any]:
    """Return a valid user's descriptor in bare values, with fields replaced."""
    h200 = load_target("H200")
    plain = {
        name: getattr(h200, name) for name in REQUIRED if name not in ("aliases", "figures")
    } | {"aliases": []}
    return plain | changes


def refusal(text: str) -> str:
    """Return the message with which a descriptor is refused."""
    with pytest.raises(TargetError) as caught:
        parse_target(text, "mine.json")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("mine.json: ")
    return message


def test_shipped_names() -> None:
    """The shipped targets are the ones the documentation names."""
    assert target_names() == tuple(sorted((*NAMES, *AMD)))


@pytest.mark.parametrize("name", [*NAMES, *AMD])
def test_file_is_named_after_its_target(name: str) -> None:
    """A target can be found in the source tree by its name."""
    raw = json.loads((FOLDER / f"{name.lower()}.json").read_text(encoding="utf-8"))
    assert raw["name"] == name


@pytest.mark.parametrize("name", [*NAMES, *AMD])
def test_every_shipped_figure_has_a_source(name: str) -> None:
    """No shipped number stands without saying where it comes from."""
    target = load_target(name)
    expected = {f for f in NUMERIC if getattr(target, f) is not None}
    for table in ("tensor_flops_per_s", "measured_tensor_flops_per_s"):
        expected |= {f"{table}.{dtype}" for dtype in getattr(target, table)}
    assert set(target.figures) == expected
    for field, figure in target.figures.items():
        assert len(figure.source) >= 40, field
        assert figure.kind in KINDS, field
        assert figure.kind != "user", field


@pytest.mark.parametrize(
    ("name", "arch", "sms", "warps", "blocks", "shared"),
    [
        ("A100", "sm_80", 108, 64, 32, 166912),
        ("L4", "sm_89", 58, 48, 24, 101376),
        ("RTX4090", "sm_89", 128, 48, 24, 101376),
        ("H100", "sm_90", 132, 64, 32, 232448),
        ("H200", "sm_90", 132, 64, 32, 232448),
        ("B200", "sm_100", 148, 64, 32, 232448),
        ("RTX5090", "sm_120", 170, 48, 24, 101376),
    ],
)
def test_limits_are_the_documented_ones(
    name: str, arch: str, sms: int, warps: int, blocks: int, shared: int
) -> None:
    """Architecture, SM count and block limits agree with NVIDIA's tables."""
    target = load_target(name)
    found = (target.arch, target.sms, target.max_warps_per_sm, target.max_blocks_per_sm)
    assert found == (arch, sms, warps, blocks)
    assert target.shared_bytes_per_block == shared
    assert target.shared_bytes_per_sm == shared + 1024
    assert target.capability == int(arch.removeprefix("sm_"))


@pytest.mark.parametrize("name", NAMES)
def test_fp32_rate_follows_from_sms_and_clock(name: str) -> None:
    """SM count, clock and FP32 rate agree: 64 (sm_80) or 128 FMAs a clock and SM."""
    target = load_target(name)
    lanes = 64 if target.capability == 80 else 128
    assert target.fp32_flops_per_s == pytest.approx(
        2 * lanes * target.sms * target.clock_hz, rel=0.01
    )


@pytest.mark.parametrize("name", NAMES)
def test_tensor_rates_are_dense(name: str) -> None:
    """Rates stand in the ratio of operand widths, so that no sparse figure slipped in."""
    target = load_target(name)
    rates = target.tensor_flops_per_s
    consumer = name.startswith("RTX")
    assert rates["bf16"] == rates["fp16"]
    assert rates["tf32"] == pytest.approx(rates["fp16"] / 2, rel=0.03)
    assert rates["int8"] == pytest.approx(rates["fp16"] * (4 if consumer else 2), rel=0.01)
    if target.capability >= 89:
        assert rates["fp8"] == pytest.approx(rates["fp16"] * 2, rel=0.01)
    per_clock = rates["fp16"] / (target.sms * target.clock_hz)
    dense = {80: 2048, 89: 512 if consumer else 1024, 90: 4096, 100: 8192, 120: 512}
    assert per_clock == pytest.approx(dense[target.capability], rel=0.09)


@pytest.mark.parametrize(
    ("name", "arch", "units", "lds", "rates"),
    [
        # Peaks in TFLOPS of AMD's data sheets; the MI250X's are of its two dies.
        ("MI250X", "gfx90a", 110, 64, {"fp16": 191.5, "int8": 191.5, "fp64": 47.9}),
        ("MI300A", "gfx942", 228, 64, {"fp16": 980.6, "fp8": 1961.2, "tf32": 490.3}),
        ("MI300X", "gfx942", 304, 64, {"fp16": 1307.4, "fp8": 2614.9, "int8": 2614.9}),
        ("MI325X", "gfx942", 304, 64, {"bf16": 1307.4, "tf32": 653.7, "fp64": 163.4}),
        ("MI350X", "gfx950", 256, 160, {"fp16": 2306.9, "fp8": 4613.7, "fp64": 72.1}),
        ("MI355X", "gfx950", 256, 160, {"fp16": 2516.6, "fp4": 10066.3, "fp64": 78.6}),
    ],
)
def test_limits_of_amd_devices(
    name: str, arch: str, units: int, lds: int, rates: dict[str, float]
) -> None:
    """Compute units, LDS and peaks agree with AMD's tables; a SIMD holds 8 wavefronts."""
    target = load_target(name)
    assert target.machine == ("hip", arch, 64)
    assert (target.sms, target.shared_bytes_per_block) == (units, lds * 1024)
    assert target.max_warps_per_sm == 8 * target.warp_allocation_granularity
    found = {dtype: target.tensor_flops_per_s[dtype] / 1e12 for dtype in rates}
    assert found == pytest.approx(rates, abs=0.06)
    assert "tf32" not in target.tensor_flops_per_s or arch == "gfx942"


def test_what_was_never_run_is_told() -> None:
    """A target of which nothing was timed says so, and an NVIDIA one has no such caution."""
    assert load_target("MI300X").caution.endswith("never run on hardware")
    assert load_target("H200").caution == ""


def test_h200_carries_what_was_measured_on_one() -> None:
    """The measured ceilings of the H200 are kept beside the vendor's and lie below them."""
    h200 = load_target("H200")
    assert h200.measured_dram_bytes_per_s == 4.25e12
    assert h200.measured_tensor_flops_per_s == {"bf16": 805e12}
    assert h200.figure("measured_tensor_flops_per_s.bf16").kind == "measured"
    assert h200.measured_dram_bytes_per_s < h200.dram_bytes_per_s == 4.8e12
    assert h200.measured_tensor_flops_per_s["bf16"] < h200.tensor_flops_per_s["bf16"]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("  nvidia   h200 ", "H200"),
    ],
)
def test_device_names_match(device: str, name: str) -> None:
    """What the driver calls a device finds its target, in any case and spacing."""
    found = match_device(device)
    assert found is not None
    assert found.name == name
    assert load_target(device) is found


@pytest.mark.parametrize(
    "device", ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB", "Tesla T4", ""]
)
def test_lookalikes_do_not_match(device: str) -> None:
    """A device of other rates is not taken for a shipped one by a similar name."""
    assert match_device(device) is None


def test_no_two_targets_share_a_name() -> None:
    """Every name and alias leads to one target only."""
    plain = [
        name.casefold()
        for target in map(load_target, [*NAMES, *AMD])
        for name in (target.name, *target.aliases)
    ]
    assert len(plain) == len(set(plain))


def test_unknown_name_lists_the_known_and_the_nearest() -> None:
    """An unknown name is answered with what exists and what was probably meant."""
    with pytest.raises(TargetError) as caught:
        load_target("h2000")
    message = str(caught.value)
    assert "'h2000' is unknown; did you mean 'H200'?" in message
    assert all(name in message for name in NAMES)
    assert "\n" not in message


def test_architecture_name_is_answered_with_its_devices() -> None:
    """Who names an architecture learns which devices of it can be named."""
    with pytest.raises(TargetError, match=r"'sm_90' is an architecture.*: H100, H200$"):
        load_target("sm_90")


def test_user_file_in_bare_values(tmp_path: Path) -> None:
    """A user's file may give bare numbers, whose source is then the user."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(descriptor(name="Mine", sms=7)), encoding="utf-8")
    target = load_target(str(path))
    assert (target.name, target.sms) == ("Mine", 7)
    assert target.source("sms") == "user"
    assert target.figure("tensor_flops_per_s.bf16").kind == "user"
    assert target.tensor_memory_bytes_per_sm is None
    assert target.measured_tensor_flops_per_s == {}


def test_user_file_with_sources() -> None:
    """A user's figure keeps the source and kind it states; kind defaults to specified."""
    target = parse_target(
        json.dumps(
            descriptor(
                sms={"value": 8, "source": "a datasheet"},
                l2_bytes={"value": 99, "source": "a probe", "kind": "measured"},
            )
        ),
        "mine.json",
    )
    assert target.figure("sms") == Figure(8, "a datasheet", "specified")
    assert target.figure("l2_bytes") == Figure(99, "a probe", "measured")


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """A file saved with a byte order mark is read as any other."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(descriptor()), encoding="utf-8-sig")
    assert load_target(str(path)).name == "H200"


@pytest.mark.parametrize("field", REQUIRED)
def test_missing_field_is_named(field: str) -> None:
    """A descriptor without a required field is refused by the field's name."""
    data = descriptor()
    del data[field]
    assert f"field {field!r} is missing" in refusal(json.dumps(data))


@pytest.mark.parametrize("field", [name for name in NUMERIC if name in REQUIRED])
@pytest.mark.parametrize("value", ["132", True, None, [1], -1, float("nan"), float("inf")])
def test_number_of_wrong_type_is_named(field: str, value: object) -> None:
    """A numeric field refuses texts, bools, null, lists, negatives, NaN and infinity."""
    assert f"{field} must be a" in refusal(json.dumps(descriptor(**{field: value})))


@pytest.mark.parametrize("field", [name for name in NUMERIC if name in REQUIRED])
def test_zero_is_refused_except_for_the_reserve(field: str) -> None:
    """No limit or rate may be 0, but a driver may reserve no shared memory."""
    text = json.dumps(descriptor(**{field: 0}))
    if field == "shared_reserved_bytes_per_block":
        assert parse_target(text, "mine.json").shared_reserved_bytes_per_block == 0
    else:
        assert f"{field} must be a" in refusal(text)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sms": 132.5}, "sms must be a whole number above 0, not 132.5"),
        ({"clock_hz": 10**400}, "clock_hz must be a number above 0"),
        ({"name": ""}, "name must be a text that is not empty"),
        ({"name": 5}, "name must be a text that is not empty, not 5"),
        ({"aliases": "H200"}, "aliases must be a list of texts, not 'H200'"),
        ({"aliases": ["a", 1]}, "aliases[1] must be a text that is not empty, not 1"),
        ({"tensor_flops_per_s": {}}, "tensor_flops_per_s must be an object with a rate"),
        ({"tensor_flops_per_s": 1e12}, "tensor_flops_per_s must be an object with a rate"),
        ({"tensor_flops_per_s": {"bf16": 0}}, "tensor_flops_per_s.bf16 must be a number above 0"),
        ({"measured_dram_bytes_per_s": "x"}, "measured_dram_bytes_per_s must be a number above 0"),
        ({"smss": 1}, "unknown field 'smss'; did you mean 'sms'?"),
        ({"figures": {}}, "unknown field 'figures'"),
        ({"a\nb": 1}, r"unknown field 'a\nb'"),
        ({"sms": {"source": "s"}}, "sms has no 'value'"),
        ({"sms": {"value": 1, "note": 2}}, "sms has an unknown key 'note'"),
        ({"sms": {"value": 1, "source": " "}}, "sms.source must be a text that is not empty"),
        ({"sms": {"value": 1, "kind": "guess"}}, "sms.kind must be one of specified, measured"),
        ({"sms": {"value": True, "source": "s"}}, "sms must be a whole number above 0, not True"),
        ({"backend": "metal"}, "backend 'metal' is unknown; known: cuda, hip"),
        ({"arch": "gfx942"}, "arch 'gfx942' is not of backend cuda; write it as 'sm_90'"),
        ({"backend": "hip"}, "arch 'sm_90' is not of backend hip; write it as 'gfx942'"),
    ],
)
def test_malformed_field_is_named(changes: dict[str, Any], expected: str) -> None:
    """Each malformed field is refused in one line with its name and what was found."""
    assert expected in refusal(json.dumps(descriptor(**changes)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"shared_bytes_per_block": 232449},
            "shared_bytes_per_block + shared_reserved_bytes_per_block = 233473"
            " exceeds shared_bytes_per_sm = 233472",
        ),
        (
            {"max_threads_per_block": 2049},
            "max_threads_per_block = 2049 exceeds max_warps_per_sm * warp_size = 2048",
        ),
        (
            {"max_registers_per_thread": 513},
            "max_registers_per_thread * warp_size = 16416"
            " exceeds registers_per_sm / warp_allocation_granularity = 16384",
        ),
        ({"max_blocks_per_sm": 65}, "max_blocks_per_sm = 65 exceeds max_warps_per_sm = 64"),
        ({"l2_bytes": 10, "dram_bytes": 9}, "l2_bytes = 10 exceeds dram_bytes = 9"),
        (
            {"dram_bytes_per_s": 2, "l2_bytes_per_s": 1},
            "dram_bytes_per_s = 2.0 exceeds l2_bytes_per_s = 1.0",
        ),
    ],
)
def test_contradicting_limits_are_named(changes: dict[str, Any], expected: str) -> None:
    """Limits that cannot both hold are refused, both named with their values."""
    assert expected in refusal(json.dumps(descriptor(**changes)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n  "name": "x",\n}', "not JSON: "),
        ("", "not JSON: Expecting value at line 1, column 1"),
        ("[]", "must hold a JSON object"),
        ("null", "must hold a JSON object"),
        ("[" * 100_000, "not usable JSON: "),
        ('{"sms": ' + "9" * 5_000 + "}", "not usable JSON: "),
    ],
)
def test_malformed_json_is_located(text: str, expected: str) -> None:
    """What is no JSON object is refused in one line, with line and column where known."""
    assert expected in refusal(text)


def test_syntax_error_gives_line_and_column() -> None:
    """A syntax error further down is located by its own line."""
    assert "at line 3, column" in refusal('{\n  "name": "x",\n  "sms" 3\n}')


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """Absent files, folders and binary files are refused in one line with their whole path."""
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    folder = deep / "folder.json"
    folder.mkdir(parents=True)
    binary = deep / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (deep / "absent.json", folder, binary, deep / "nul\0.json", deep / "two\n.json"):
        with pytest.raises(TargetError) as caught:
            load_target(str(path))
        assert str(path).splitlines()[0].split("\0")[0] in str(caught.value)
        assert "cannot be read" in str(caught.value)
        assert "\n" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=5,
)


@given(st.sampled_from([f.name for f in dataclasses.fields(Target)]), json_values)
def test_any_value_loads_or_is_refused_in_one_line(field: str, value: object) -> None:
    """Whatever stands in a field, the outcome is a target or one line naming the file."""
    text = json.dumps(descriptor(**{field: value}))
    message = "mine.json: fine"
    try:
        parse_target(text, "mine.json")
    except TargetError as error:
        message = str(error)
    assert message.startswith("mine.json: ")
    assert len(message.splitlines()) == 1


@given(st.text())
def test_any_text_is_refused_in_one_line(text: str) -> None:
    """Text that is no descriptor never raises anything but a TargetError."""
    with pytest.raises(TargetError) as caught:
        parse_target(text, "mine.json")
    assert len(str(caught.value).splitlines()) == 1


def test_target_error_is_a_value_error() -> None:
    """Callers that catch ValueError or the package's InputError catch these as well."""
    assert issubclass(TargetError, InputError)
    assert issubclass(TargetError, ValueError)


def test_flops_by_type() -> None:
    """Rates are found by operand type; a type without a rate lists those that have one."""
    a100 = load_target("A100")
    assert a100.flops_per_s("bf16") == 312e12
    assert a100.flops_per_s("fp32") == 19.5e12
    with pytest.raises(TargetError, match=r"A100 has no rate for 'fp8'; it has fp32, fp16, bf16"):
        a100.flops_per_s("fp8")


def test_rates_of_the_whole_device() -> None:
    """Per-clock figures of one SM scale by SM count and clock."""
    h200 = load_target("H200")
    assert h200.issue_slots_per_s == 4 * 132 * 1.98e9
    assert h200.shared_bytes_per_s == 128 * 132 * 1.98e9
    assert h200.special_functions_per_s == 16 * 132 * 1.98e9


def test_unknown_figure_is_refused() -> None:
    """Asking for the source of a field that is no figure names it and the nearest one."""
    with pytest.raises(TargetError, match=r"no figure 'smz'; did you mean 'sms'\?"):
        load_target("H200").source("smz")


def test_hip_target_has_no_cuda_capability() -> None:
    """An AMD descriptor loads, and only its CUDA capability is refused."""
    text = json.dumps(descriptor(backend="hip", arch="gfx942", warp_size=32))
    target = parse_target(text, "mine.json")
    assert target.arch == "gfx942"
    with pytest.raises(TargetError, match="'gfx942' has no CUDA compute capability"):
        _ = target.capability


def test_architecture_specific_suffix_is_kept_out_of_the_capability() -> None:
    """sm_90a is capability 90."""
    assert parse_target(json.dumps(descriptor(arch="sm_90a")), "mine.json").capability == 90


def test_target_is_a_value() -> None:
    """A target is frozen, hashable, and survives pickling to a worker."""
    h200 = load_target("H200")
    copy = pickle.loads(pickle.dumps(h200))
    assert copy == h200
    assert hash(copy) == hash(h200)
    assert copy.source("sms") == h200.source("sms")
    assert h200 != load_target("H100")
    with pytest.raises(dataclasses.FrozenInstanceError):
        h200.sms = 1  # type: ignore[misc]


def run_python(code: str, path: Path) -> str:
    """Run code in a fresh interpreter that finds asmtune under `path`; return its output."""
    env = dict(os.environ, PYTHONPATH=str(path))
    command = [sys.executable, "-P", "-c", code]  # -P: not from the working directory
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_light() -> None:
    """Importing the module reads no descriptor and loads nothing heavy."""
    heavy = ("torch", "triton", "importlib.resources", "difflib", "asmtune.core.hardware.devices")
    code = "import sys, asmtune.core.hardware.shipped; "
    code += f"print([m for m in {heavy} if m in sys.modules])"
    assert run_python(code, PACKAGE.parent) == "[]"


def test_loads_from_a_zip_file(tmp_path: Path) -> None:
    """Descriptors are found inside an archive as well as in a folder."""
    archive = tmp_path / "asmtune.zip"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("asmtune/__init__.py", "")
        hardware = PACKAGE / "core" / "hardware"
        modules = [PACKAGE / "core" / "__init__.py", *hardware.rglob("*.py")]
        for path in [*modules, *(PACKAGE / "base").glob("*.py"), *FOLDER.glob("*.json")]:
            z.write(path, f"asmtune/{path.relative_to(PACKAGE)}")
    code = "from asmtune.core.hardware import shipped as t; "
    code += "print(t.load_target('h200').sms, t.__file__)"
    sms, where = run_python(code, archive).split(maxsplit=1)
    assert sms == "132"
    assert ".zip" in where
