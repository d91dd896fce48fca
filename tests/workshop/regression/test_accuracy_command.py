"""`asmtune accuracy`: forms, exit codes, files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_lines import Commands

SCALES = str(Path(__file__).parents[3] / "examples" / "fp8_scales.py")
SHAPE = {"rows": 8, "cols": 32, "outliers": 1}
RUN = ("accuracy", f"{SCALES}:per_channel", "--shape", "rows=8,cols=32,outliers=1")
GUARD = ("--check", "{}/limits.json")


def test_table_and_json(commands: Commands) -> None:
    """A row a variant, as a table and as JSON."""
    more = ("--variant", "g=per_group(group=8)", "--variant", "per_tensor")
    ran = commands.run(*RUN, *more)
    assert (ran.code, ran.err) == (0, "")
    assert [name in ran.out for name in ("per_channel", " g ", "per_tensor")] == [True] * 3
    document = json.loads(commands.run(*RUN, *more, "--format", "json", "--seed", "7").out)
    assert [row["variant"] for row in document["rows"]] == ["per_channel", "g", "per_tensor"]
    assert document["seed"] == 7


def test_a_function_with_keywords_is_its_own_name(commands: Commands) -> None:
    """The first = of --variant is a keyword's where it stands in brackets."""
    ran = commands.run(*RUN, "--variant", "per_group(group=8)", "--format", "json")
    names = [row["variant"] for row in json.loads(ran.out)["rows"]]
    assert names == ["per_channel", "per_group(group=8)"]


def test_names_that_are_no_functions_are_not_suggested(commands: Commands) -> None:
    """A name of the file that cannot be called is refused, and is no suggestion."""
    ran = commands.run("accuracy", f"{SCALES}:SHAPES")
    assert ran.code == 2
    assert "defines no function 'SHAPES'" in ran.err
    assert "did you mean SHAPES" not in ran.err


def test_exit_codes_of_a_guard(commands: Commands) -> None:
    """0 where limits hold, 1 where one is broken, 3 where there is none."""
    limits = commands.folder / "limits.json"
    head = '{"format": "asmtune-accuracy-thresholds", "version": 1, "limits": '
    limits.write_text(head + "[]}")
    assert commands.run(*RUN, *GUARD).code == 3
    subject = {
        "kernel": "per_channel",
        "shape": SHAPE,
        "dtype": "fp32",
    }
    subject["variant"] = "per_channel, against fp64"
    for most, code in ((1.0, 0), (1e-6, 1)):
        row = {"subject": subject, "bound": {"p99": most}}
        limits.write_text(head + json.dumps([row]) + "}")
        ran = commands.run(*RUN, *GUARD, "--format", "markdown")
        assert ran.code == code, ran
        assert ran.out.startswith("### " + ("No larger error" if most == 1.0 else "Larger error"))


def test_limits_of_a_renamed_variant(commands: Commands) -> None:
    """A variant that the file limits and the run lacks is told in one line, with exit code 3."""
    limits = commands.folder / "limits.json"
    subject = {
        "kernel": "per_channel",
        "shape": SHAPE,
        "dtype": "fp32",
    }

    def limited(**parts: str) -> dict[str, object]:
        variant = f"{parts.pop('name')}, against {parts.pop('against', 'fp64')}"
        return {"subject": {**subject, "variant": variant, **parts}, "bound": {"p99": 1.0}}

    elsewhere = [limited(name="old", against="fp32"), limited(name="old", dtype="fp16")]
    elsewhere.append(limited(name="old", kernel="per_tensor"))
    head = {"format": "asmtune-accuracy-thresholds", "version": 1}
    rows = [limited(name="per_channel"), *elsewhere]
    limits.write_text(json.dumps({**head, "limits": rows}))
    ran = commands.run(*RUN, *GUARD, "--variant", "new=per_tensor", "--format", "json")
    assert ran.code == 0, "limits of other runs are not this one's"
    limits.write_text(json.dumps({**head, "limits": [*rows, limited(name="old")]}))
    ran = commands.run(*RUN, *GUARD, "--variant", "new=per_tensor", "--format", "json")
    document = json.loads(ran.out)
    assert (ran.code, document["outcome"], document["counts"]["gone"]) == (3, "fine", 1)
    assert ["limits of old, against fp64" in text for text in document["remarks"]] == [True]
    for form, line in (("text", "1 gone"), ("markdown", "### No larger error: 1 unchanged")):
        ran = commands.run(*RUN, *GUARD, "--variant", "new=per_tensor", "--format", form)
        assert ran.code == 3
        assert line in ran.out
        assert "name it as before" in ran.out.replace("\n", " ")
    rows[0]["bound"] = {"p99": 1e-6}
    limits.write_text(json.dumps({**head, "limits": [*rows, limited(name="old")]}))
    assert commands.run(*RUN, *GUARD).code == 1, "a broken limit is graver"


def test_limits_are_written_and_judged(commands: Commands) -> None:
    """Limits of one run hold for other inputs; one that is cut to nothing is broken."""
    limits = commands.folder / "limits.json"
    assert commands.run(*RUN, "--write-limits", "{}/limits.json").code == 0
    ran = commands.run(*RUN, *GUARD, "--format", "json", "--seed", "1")
    assert (ran.code, json.loads(ran.out)["counts"]) == (0, {"unchanged": 4})
    document = json.loads(limits.read_text())
    document["limits"][0]["bound"]["mean_rel"] = 1e-9
    limits.write_text(json.dumps(document))
    ran = commands.run(*RUN, *GUARD, "--format", "markdown")
    assert (ran.code, ran.out.splitlines()[0]) == (1, "### Larger error: 1 worse, 3 unchanged")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "markdown"), "needs --check FILE"),
        (("--format", "yaml"), "one of text, markdown, json"),
        (GUARD, "limits.json: No such file"),
        (("--variant", "=x"), "neither NAME=SPEC nor a function's name"),
        (("--variant", "a=x=1", "--variant", "a=x=2"), "a is given twice"),
        (("--write-limits", "{}/absent/limits.json"), "no such folder"),
        (("--dtype", "fp9"), "unknown dtype 'fp9'"),
        (("--against", "nothing"), "--against 'nothing'"),
    ],
)
def test_bad_options_are_refused(
    commands: Commands, options: tuple[str, ...], message: str
) -> None:
    """One line says what is wrong."""
    assert message in commands.refused(*RUN, *options)
