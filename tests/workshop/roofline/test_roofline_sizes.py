"""Whether a record was timed at a shape: by its key, or a module's shapes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.core.space.space import Space
from asmtune.store.lookup import StoreLookup
from asmtune.workshop.roofline.subjects import is_sized
from tests.command_lines import Commands
from tests.pinned import needs_shipped
from tests.sample_kernels import scale, scale_problem
from tests.trace_runs import FAST

MADE = Provenance("s", "t", "3.6.0", "2.13.0", "0.1.0", "570.1", "2025-03-04")
BUCKET = TuneKey("mine.kernel", {"pow2(n)": 4096}, {"x_ptr": "fp16"}, "NVIDIA H200")


def key_of(shape: Shape) -> TuneKey:
    """The key of a launch: sizes up to the next power of two are one."""
    return replace(BUCKET, shape={"pow2(n)": 1 << (int(shape["n"]) - 1).bit_length()})


def module(*sizes: int) -> KernelModule:
    """A kernel measured at some sizes."""

    def problem(shape: Shape, dtype: str, device: str) -> Problem:
        return scale_problem(int(shape["n"]))

    shapes = tuple({"n": size} for size in sizes)
    return KernelModule("scale", scale, lambda: Space({"BLOCK": (64,)}), problem, shapes, ("fp16",))


def found(key: TuneKey = BUCKET, layer: str = "store", us: float = 10.0) -> StoreLookup:
    """A record of a key, whose winner took so long."""
    timings = (Measurement(FAST, us, us, us, ()),)
    return StoreLookup("hit", TuneRecord(key, FAST, timings, MADE), layer=layer)  # type: ignore[arg-type]


def sized(lookup: StoreLookup, kernel: KernelModule | None = None) -> bool:
    """Say if it was timed at 4,000."""
    return is_sized(lookup, kernel or module(100), {"n": 4000}, key_of)


def test_a_key_that_names_the_size() -> None:
    """An exact key tells; a key of another size in the same words does not."""
    exact = replace(BUCKET, shape={"n": 4000})
    assert sized(found(exact))
    assert not sized(found(replace(BUCKET, shape={"n": 4096})))
    assert not sized(StoreLookup("miss"))


def test_a_bucket() -> None:
    """Nothing tells at which size of the bucket the record was timed."""
    assert not sized(found())


def test_what_ships_was_timed_at_the_modules_shapes() -> None:
    """Where one of them alone has the key it is that one; of two in a bucket nobody knows."""
    shipped = found(layer="shipped")
    assert sized(shipped, module(100, 4000))
    assert not sized(shipped, module(100, 4000, 3000))
    assert not sized(shipped, module(100, 3000))


@needs_shipped
@pytest.mark.parametrize(("rows", "how"), [(1823, "measured"), (2000, "predicted")])
def test_softmax_in_its_bucket(commands: Commands, rows: int, how: str) -> None:
    """The shipped time of 1,823 rows is not told of 2,000, whose key is the same."""
    shape = f"rows={rows},cols=781"
    ran = commands.run("roofline", "softmax", "--shape", shape, "--format", "json")
    (entry,) = json.loads(ran.out)["entries"]
    assert (entry["tuned_by"], entry["after"]["time_is"]) == ("shipped", how)
