"""Hardware descriptors: the shipped figures, loading, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import TargetError
from asmtune.core.hardware import shipped
from asmtune.core.hardware.descriptor import KINDS, descriptor_of, family, limits_of, parse_target
from asmtune.core.hardware.model import Figure, Target, apart
from asmtune.core.hardware.shipped import (
    TargetWarning,
    known_targets,
    load_target,
    match_device,
    target_names,
)
from tests.command_lines import Commands
from tests.driver_tables import pretend

SHIPPED = [name for name in target_names() if load_target(name).backend == "cuda"]
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


def test_every_shipped_figure_has_a_source() -> None:
    """No shipped number stands without saying where it comes from."""
    offenders = []
    for target in map(load_target, target_names()):
        expected = {f for f in NUMERIC if getattr(target, f) is not None}
        for table in ("tensor_flops_per_s", "measured_tensor_flops_per_s"):
            expected |= {f"{table}.{dtype}" for dtype in getattr(target, table)}
        assert set(target.figures) == expected, target.name
        offenders += [
            (target.name, field)
            for field, figure in target.figures.items()
            if len(figure.source) < 40 or figure.kind not in KINDS or figure.kind == "user"
        ]
    assert offenders == []


def test_device_names() -> None:
    """What the driver calls a device finds its target, in any case and spacing, and no other's."""
    names = {
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA GeForce RTX 4090": "RTX4090",
        "NVIDIA H100 80GB HBM3": "H100",
        "  nvidia   h200 ": "H200",
        "AMD Instinct MI300X": "MI300X",
    }
    for device, name in names.items():
        assert match_device(device) is load_target(device) is load_target(name)
    others = ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200 SXM6", "NVIDIA A30", "A2", "")
    assert [device for device in others if match_device(device) is not None] == []


def test_no_two_targets_share_a_name() -> None:
    """Every name and alias leads to one target only."""
    plain = [
        name.casefold()
        for target in map(load_target, target_names())
        for name in (target.name, *target.aliases)
    ]
    assert len(plain) == len(set(plain))


@pytest.mark.parametrize("field", REQUIRED)
def test_a_field_that_is_missing_or_no_number(field: str) -> None:
    """A field that must be there is named; a number is above 0, but for the driver's reserve."""
    data = descriptor()
    del data[field]
    assert f"field {field!r} is missing" in refusal(json.dumps(data))
    values = ("132", True, None, [1], -1, math.nan, math.inf) if field in NUMERIC else ()
    for value in values:
        assert f"{field} must be a" in refusal(json.dumps(descriptor(**{field: value})))
    if values and field != "shared_reserved_bytes_per_block":
        assert f"{field} must be a" in refusal(json.dumps(descriptor(**{field: 0})))


def test_a_users_file(tmp_path: Path) -> None:
    """Bare numbers have the user as source; others keep theirs, with a kind; a mark is skipped."""
    own = {"value": 99, "source": "a probe", "kind": "measured"}
    text = json.dumps(
        descriptor(name="Mine", arch="sm_90a", l2_bytes=own, sms={"value": 7, "source": "a sheet"})
    )
    path = tmp_path / "mine.json"
    path.write_text(text, encoding="utf-8-sig")
    target = load_target(str(path))
    assert (target.name, target.sms, target.capability) == ("Mine", 7, 90)
    assert target.figure("sms") == Figure(7, "a sheet", "specified")
    assert target.figure("l2_bytes") == Figure(99, "a probe", "measured")
    assert target.figure("tensor_flops_per_s.bf16").kind == "user"
    assert target.tensor_memory_bytes_per_sm is None
    with pytest.raises(TargetError, match=r"no figure 'smz'; did you mean sms\?"):
        target.figure("smz")
    hip = parse_target(json.dumps(descriptor(backend="hip", arch="gfx942")), "mine.json")
    assert load_target("MI300X").caution.endswith("never run on hardware")
    assert target.caution == ""
    with pytest.raises(TargetError, match="'gfx942' has no CUDA compute capability"):
        _ = hip.capability


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"clock_hz": 10**400}, "clock_hz must"),
        ({"clock_hz": 1980}, "clock_hz is 1980, .* below 1e.06; give it in hertz"),
        ({"name": ""}, "name must"),
        ({"aliases": ["a", 1]}, r"aliases\[1\] must .*1"),
        ({"tensor_flops_per_s": {}}, "tensor_flops_per_s must"),
        ({"tensor_flops_per_s": {"bf16": 0}}, "tensor_flops_per_s.bf16 must"),
        ({"smss": 1}, r"unknown field 'smss'; did you mean sms\?"),
        ({"a\nb": 1}, r"unknown field 'a\\nb'"),
        ({"sms": {"source": "s"}}, "sms has no 'value'"),
        ({"sms": {"value": 1, "note": 2}}, "sms has an unknown key 'note'"),
        ({"sms": {"value": 1, "kind": "guess"}}, "sms.kind must"),
        ({"backend": "metal"}, "backend 'metal' is unknown"),
        ({"arch": "gfx942"}, "arch 'gfx942' is not of backend cuda"),
        ({"backend": "hip"}, "arch 'sm_90' is not of backend hip"),
    ],
)
def test_malformed_field_is_named(changes: dict[str, Any], expected: str) -> None:
    """Each malformed field is refused in one line with its name and what was found."""
    assert re.search(expected, refusal(json.dumps(descriptor(**changes))))


@pytest.mark.parametrize(
    "text",
    ['{\n  "name": "x",\n}', "", "[]", "null", "[" * 100_000, '{"sms": ' + "9" * 5_000 + "}"],
)
def test_malformed_json_is_refused(text: str) -> None:
    """What is no JSON object is refused in one line that names the file."""
    assert "JSON" in refusal(text)


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


def written(folder: Path, **files: dict[str, Any] | str) -> Path:
    """Return a folder with files of these names, each a descriptor or text."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of descriptors, empty."""
    monkeypatch.setenv("ASMTUNE_TARGETS", str(tmp_path / "own"))
    shipped._warned.clear()
    return written(tmp_path / "own")


def test_a_descriptor_reads_back() -> None:
    """What is written of a target is a descriptor of the same figures."""
    for name in target_names():
        target = load_target(name)
        again = parse_target(json.dumps(descriptor_of(target)), "mine.json")
        assert again == target
        assert again.figures == target.figures


def test_the_users_descriptor_comes_before_a_shipped_one(own: Path) -> None:
    """A file of the user's folder stands for a device by any of its names, from then on."""
    assert load_target("NVIDIA H200").sms == 132
    written(own, slow=descriptor(name="H200", aliases=["NVIDIA H200"], sms=66))
    assert load_target("h200") is match_device("NVIDIA  h200")
    assert load_target("H200").sms == 66
    assert load_target("H200", own=False).sms == 132
    assert [target.sms for target in known_targets() if target.name == "H200"] == [66]
    written(own, slow=descriptor(name="H200", aliases=["NVIDIA H200"], sms=33, clock_hz=1e9))
    assert load_target("NVIDIA H200").sms == 33
    (own / "slow.json").unlink()
    assert load_target("NVIDIA H200").sms == 132


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"broken": "{"}, "broken.json: not JSON"),
        ({"broken": descriptor(sms=-1)}, "sms must be a whole number above 0"),
        ({"a": descriptor(name="X"), "b": descriptor(name="x")}, "b.json: describes 'x', as"),
    ],
)
def test_a_damaged_file_stops_no_launch(own: Path, files: dict[str, Any], says: str) -> None:
    """A file that cannot be used is told once in one line, and all others are used."""
    written(own, good=descriptor(name="Mine", sms=7), **files)
    with pytest.warns(TargetWarning, match=says) as caught:
        assert match_device("Mine") == load_target("Mine")
    assert load_target("H200").sms == 132
    assert len(caught) == 1
    assert len(str(caught[0].message).splitlines()) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert match_device("NVIDIA H100 80GB HBM3") is load_target("H100")


def test_a_folder_that_cannot_be_read_stops_no_launch(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch goes on with the shipped descriptors; a command that names a target is refused."""
    monkeypatch.setenv("ASMTUNE_TARGETS", str(own / "none"))
    with pytest.warns(TargetWarning, match="No such file or directory; correct ASMTUNE_TARGETS"):
        assert match_device("NVIDIA H200") is not None
    with pytest.raises(TargetError, match="No such file or directory"):
        load_target("H200")


def test_no_rate_is_beyond_the_architectures() -> None:
    """No sparse figure slipped in: rates are at most those of the architecture's SM in a clock."""
    offenders = []
    for target in map(load_target, SHIPPED):
        _, rates = limits_of(*divmod(target.capability, 10))
        tensor, clocks = target.tensor_flops_per_s, target.sms * target.clock_hz
        offenders += [
            (target.name, dtype)
            for dtype, rate in tensor.items()  # some documents state fp64 rounded to one digit
            if dtype != "fp64" and rate > 1.09 * rates["tensor"][dtype]["value"] * clocks
        ]
        assert tensor.get("bf16", tensor["fp16"]) == tensor["fp16"], target.name
        vector = rates["fp32"]["value"] * clocks
        assert target.fp32_flops_per_s == pytest.approx(vector, rel=0.13), target.name
    assert offenders == []


def test_a_device_like_another_inherits_nothing_measured() -> None:
    """What was measured on one device is not told of its relative."""
    whole = {"name": "X", "aliases": [], "arch": "sm_90", "sms": [1, "@doc"], "bus_bits": 512}
    whole |= {"clock_hz": [1e9, "@doc"], "measured_dram_bytes_per_s": [1e12, "@doc", "measured"]}
    devices = [whole, {"name": "Y", "like": "X", "aliases": [], "sms": [2, "@doc sheet"]}]
    first, second = family(json.dumps({"sources": {"doc": "A"}, "devices": devices}), "f.json")
    assert "measured_dram_bytes_per_s" in first
    assert "measured_dram_bytes_per_s" not in second
    assert second["sms"] == {"value": 2, "source": "A sheet", "kind": "specified"}
    rate = second["tensor_flops_per_s"]["bf16"]
    assert (rate["value"], rate["kind"]) == (4096 * 2 * 1e9, "derived")
    assert rate["source"].startswith("4,096 FLOPs a clock and SM x 2 SMs x 1000 MHz, after NVIDIA")


@pytest.fixture
def commands_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    """Commands on a machine whose GPU no file describes."""
    pretend("NVIDIA A30", monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    return Commands(tmp_path, capsys)


def test_the_gpu_here_is_shown(commands_here: Commands) -> None:
    """Its derived descriptor is JSON that reads back, with what the driver tells."""
    shown = parse_target(commands_here.run("targets", "show", "--format", "json").out, "here.json")
    assert (shown.name, shown.sms) == ("NVIDIA A30", 56)
    assert shown.figure("sms").kind == "driver"


def test_devices_are_sorted_by_architecture_sms_and_bandwidth() -> None:
    """An H200 is nearest to itself, then to Hoppers of as many SMs, and to no device of AMD."""
    here = load_target("H200")
    away = {name: apart(load_target(name), here) for name in target_names()}
    near = sorted((d, name) for name, d in away.items() if d is not None)
    order = [name for _, name in near]
    assert order[0] == "H200"
    assert order.index("H100") < order.index("H100-PCIe") < order.index("H20")
    assert order.index("H20") < order.index("L4")
    assert order.index("A10") < order.index("T4")
    assert away["MI300X"] is None
    radeon, instinct = (
        dataclasses.replace(load_target(name), arch=arch)
        for name, arch in (("MI300X", "gfx90a"), ("MI300X", "gfx950"))
    )
    assert apart(radeon, instinct) == (0, 0x46, 0.0, 0.0)
    assert apart(dataclasses.replace(radeon, arch="gfx1100"), instinct) > (1,)
