"""Spaces: what they hold, in which order, how lazily, and what they refuse."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import SpaceError
from asmtune.core.config import Config
from asmtune.core.space import table as table_module
from asmtune.core.space.constraints import ConstraintWarning
from asmtune.core.space.space import Space
from asmtune.core.space.table import MOST, SpaceTable

LARGE = {
    "A": range(10),
    "B": range(10),
    "C": range(10),
    "D": range(10),
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (2, 3),
}


class Counted:
    """A predicate that counts its calls."""

    def __init__(self, predicate: Callable[..., bool]) -> None:
        self.predicate = predicate
        self.__signature__ = inspect.signature(predicate)
        self.calls = 0

    def __call__(self, **values: Any) -> bool:
        """Count, and ask the predicate."""
        self.calls += 1
        return self.predicate(**values)


def flat(space: Space, **context: Any) -> list[dict[str, Any]]:
    """The configs of a space as mappings."""
    return [config.to_dict() for config in space.configs(**context)]


def test_constraints_are_checked_once_a_combination() -> None:
    """A constraint is asked once for each combination of its axes that those before it left."""
    early, late = (
        Counted(lambda A: A == 3),
        Counted(lambda A, num_stages: A == 3 and num_stages == 2),
    )
    space = Space(LARGE).where("early", early).where("late", late)
    assert sum(1 for _ in space) == 5_000
    assert early.calls == 10
    assert late.calls == 2


@st.composite
def constrained(draw: st.DrawFn) -> tuple[dict[str, list[int]], list[tuple[tuple[str, ...], int]]]:
    """Axes, and conditions of the form "the sum of these is no multiple of n"."""
    names = draw(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=4, unique=True))
    values = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
    axes = {name: draw(values) for name in names}
    some = st.lists(st.sampled_from([*names, "M"]), max_size=3, unique=True).map(tuple)
    return axes, draw(st.lists(st.tuples(some, st.integers(1, 4)), max_size=4))


def predicate_on(names: tuple[str, ...], divisor: int) -> Callable[..., bool]:
    """A predicate with these parameters."""
    return eval(f"lambda {', '.join(names)}: sum(({''.join(n + ',' for n in names)})) % {divisor}")


@given(constrained(), st.integers(0, 9))
def test_constraints_against_brute_force(
    drawn: tuple[dict[str, list[int]], list[tuple[tuple[str, ...], int]]], size: int
) -> None:
    """The points of a space are those of the product that all constraints accept, in its order."""
    axes, conditions = drawn
    space = Space(axes)
    for number, (names, divisor) in enumerate(conditions):
        space = space.where(f"condition {number}", predicate_on(names, divisor))
    expected = []
    for point in itertools.product(*axes.values()):
        values = {**dict(zip(axes, point, strict=True)), "M": size}
        if all(sum(values[n] for n in names) % divisor for names, divisor in conditions):
            expected.append(dict(zip(axes, point, strict=True)))
    assert [config.kwargs for config in space.configs(M=size)] == expected


def test_replace_changes_and_adds() -> None:
    """Axes get other values, a missing option is added, constraints stay."""
    space = Space({"A": [1, 2], "B": [5]}).where("A is not B", lambda A, B: A != B)
    other = space.replace(A=(5, 6), num_warps=[2])
    assert flat(other) == [{"A": 6, "B": 5, "num_warps": 2, "num_stages": 3}]
    assert len(list(space)) == 2


def test_replace_keeps_a_default_that_fits_and_drops_one_that_does_not() -> None:
    """A default stays exactly as long as its values are on the axes."""
    space = Space({"A": [1, 2, 4]}, default=Config({"A": 4}))
    assert space.replace(A=[2, 4]).first() == Config({"A": 4})
    assert space.replace(A=[2, 1]).first() == Config({"A": 2})
    assert space.replace(num_warps=[8]).first() == Config({"A": 1}, num_warps=8)


def test_from_configs_keeps_order_and_drops_repeats() -> None:
    """A list of `triton.Config` is the space of these points, hooks and all."""

    def hook(arguments: dict[str, Any]) -> None:
        """Do nothing."""

    given_configs = [
        triton.Config({"B": 64}, num_warps=8, pre_hook=hook),
        triton.Config({"B": 32}, num_stages=1, maxnreg=96),
        triton.Config({"B": 64}, num_warps=8, pre_hook=hook),
    ]
    space = Space.of(given_configs)
    assert list(space) == [
        Config({"B": 64}, num_warps=8, pre_hook=hook),
        Config({"B": 32}, num_stages=1, maxnreg=96),
    ]
    assert space.size == 2
    assert space.first() == Config({"B": 64}, num_warps=8, pre_hook=hook)
    assert set(space.axes["B"]) == {64, 32}


def test_from_configs_takes_constraints_on_any_option() -> None:
    """A constraint over a list may name options that its configs leave at their defaults."""
    space = Space.from_configs(
        [triton.Config({"B": 1}, num_ctas=2), triton.Config({"B": 2}), triton.Config({"B": 3})]
    )
    single = space.where(
        "one CTA, no cap", lambda B, num_ctas, maxnreg, N: num_ctas == 1 and not maxnreg and B < N
    )
    assert flat(single, N=3) == [{"B": 2, "num_warps": 4, "num_stages": 3}]


def test_replace_varies_each_config_of_a_list() -> None:
    """Each config gets each value and keeps its others and its hook; equal ones are one."""

    def hook(_: object) -> None:
        pass

    space = Space.from_configs(
        [Config({"B": 1}, num_warps=2, pre_hook=hook), Config({"B": 2}, num_warps=8)]
    )
    varied = space.replace(B=[2, 3], num_stages=[4]).listed
    assert [(c.kwargs["B"], c.num_warps, c.num_stages) for c in varied] == [
        (2, 2, 4), (3, 2, 4), (2, 8, 4), (3, 8, 4),
    ]  # fmt: skip
    assert varied[0].pre_hook is hook


def test_of_takes_spaces_lists_and_mappings() -> None:
    """`Space.of` gives back a space, and makes one of a list or of axes."""
    space = Space({"A": [1]})
    assert Space.of(space) is space
    assert list(Space.of({"A": [1]})) == list(Space.of(iter([{"A": 1}]))) == list(space)


def defaulted(config: Config) -> Space:
    """A space with a default."""
    return Space({"A": [1, 2], "B": [5], "num_warps": [4, 8]}, default=config)


def fits(BLOCK: int) -> bool:
    """Hold for small blocks."""
    return BLOCK < 64


HALVES = Space({"A": range(10), "B": [1]}).where("large", lambda A, M: A >= M)
REFUSED: dict[str, Callable[[], Any]] = {
    "the list given is empty": lambda: Space.from_configs([]),
    "'B=1' is not a config": lambda: Space.from_configs(["B=1"]),
    "default B=9 .* not one of the 1 configs": lambda: Space.from_configs(
        [Config({"B": 1})], default=Config({"B": 9})
    ),
    "5 is no space": lambda: Space.of(5),
    "A=3 .* outside the axes: axis 'A' has 1, 2": lambda: defaulted(Config({"A": 3, "B": 5})),
    "outside the axes: it lacks B": lambda: defaulted(Config({"A": 1})),
    "there is no axis 'C'": lambda: defaulted(Config({"A": 1, "B": 5, "C": 0})),
    "axis 'num_warps' has 4, 8": lambda: defaulted(Config({"A": 1, "B": 5}, num_warps=16)),
    "'divides' names 'Q', .* nor given by the shape": lambda: list(
        Space({"A": [1]}).where("divides", lambda A, Q: Q % A == 0).configs(M=1)
    ),
    "no feasible point among 10: none has 'large' and 'small' at M=8": lambda: HALVES.where(
        "small", lambda A: A < 8
    ).first(M=8, N=4),
    "unknown axis 'C'": lambda: Space.from_configs([Config({"B": 1})]).replace(C=[2]),
    "axis 'BLOK': the axes are .*mean BLOCK": lambda: Space({"BLOCK": [1]}).replace(BLOK=[2]),
    "constraint 'BLOCK < 64': give a Constraint, or a func": lambda: Space(
        {"BLOCK": [32]},
        constraints=["BLOCK < 64"],  # type: ignore[list-item]
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message: str) -> None:
    """One line has the value at fault, and what there is."""
    with pytest.raises(SpaceError, match=message) as caught:
        REFUSED[message]()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("as_list", [False, True])
def test_values_that_are_stored_as_text_are_themselves_in_a_space(as_list: bool) -> None:
    """Axes, defaults and constraints see a dtype or a tuple, not its text."""
    default = Config({"DTYPE": tl.float32, "TILE": (2, 1)})
    space = Space({"DTYPE": (tl.float16, tl.float32), "TILE": ((1, 2), (2, 1))}, default=default)
    if as_list:
        space = Space.from_configs(list(space), default)
        assert space.axes["DTYPE"] == (tl.float16, tl.float32)
        assert space.axes["TILE"] == ((1, 2), (2, 1))
    allowed = space.where("wide", lambda DTYPE, TILE: tl.float32 == DTYPE and TILE[0] == 2)
    assert [config.kwargs for config in allowed] == [default.kwargs]
    assert allowed.first() == default
    assert allowed.lacks(default) is None
    assert default.to_dict() | {"DTYPE": "fp32", "TILE": "(2, 1)"} == default.to_dict()


def test_first_is_the_default_where_it_is_feasible() -> None:
    """The default goes first unless a constraint forbids it for the shape at hand."""
    space = Space({"A": [1, 2, 4]}, default=Config({"A": 4})).where("fits", lambda A, N: A <= N)
    assert space.first(N=4) == Config({"A": 4})
    assert space.first(N=3) == Config({"A": 1})


def test_a_size_may_have_any_name() -> None:
    """A size called as a parameter of the methods is a size like any other."""
    space = Space({"A": [1, 2]}, default=Config({"A": 2})).where("fits", lambda A, self: self >= A)
    assert space.first(self=1) == Config({"A": 1})
    assert list(space.configs(self=1)) == [Config({"A": 1})]


@pytest.mark.parametrize(
    ("predicate", "cause"),
    [
        (lambda A: 1 // A, "ZeroDivisionError: integer division or modulo by zero"),
        (lambda A: A < LIMIT_THAT_IS_NOT_THERE, "NameError: name 'LIMIT_THAT_IS_NOT_THERE'"),  # noqa: F821
    ],
)
def test_constraint_that_raises(predicate: Callable[..., bool], cause: str) -> None:
    """A predicate's own error is told where no point is left, with name, point and cause."""
    space = Space({"A": [0]}).where("mine", predicate)
    text = re.escape(f"constraint 'mine' failed at {{'A': 0}}: {cause}")
    with pytest.warns(ConstraintWarning, match=text), pytest.raises(SpaceError, match=text):
        space.first()


def test_constraint_that_raises_at_one_point() -> None:
    """A point at which a predicate raises is left out, also as the default, with one warning."""
    space = Space({"A": [0, 1, 2]}, default=Config({"A": 0})).where("mine", lambda A: 2 // A)
    with pytest.warns(ConstraintWarning, match="'mine' failed at .*ZeroDivisionError"):
        first = space.first()
    assert first == Config({"A": 1})
    assert [config.kwargs["A"] for config in space] == [1, 2]  # warned of once
    assert space.lacks(Config({"A": 0})) == "constraint 'mine' rejects it"


_NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "values", "allowed"),
    [
        *(("num_warps", [value], "a power of two") for value in (3, 6.5, 0, -4, True, "4", None)),
        *(("num_warps", [value], "a power of two") for value in (_NAN, 10**23)),
        *(("num_ctas", [value], "a power of two from 1 to 16") for value in (3, 32, 0, 2.0)),
        *(("num_stages", [value], "a whole number from 1") for value in (0, -1, 1.5, 10**6, "x")),
        *(("maxnreg", [value], "None or a whole number from 1") for value in (0, -8, 1.5, _NAN)),
        *(("num_warps", values, "expected a list of values") for values in ({}, "48", b"4", 4)),
        ("num_warps", {4: 8}, "expected a list of values"),
        ("num_warps", [], "at least one value"),
        ("num_warps", [4, 4], "repeats a value"),
        ("BLOCK", [_NAN], "expected finite numbers"),
        ("BLOCK", [64, 64.0], "repeats a value"),
        ("BLOCK", [[1]], "has a value that cannot be one: unhashable type: 'list'"),
    ],
)
def test_values_that_no_axis_can_have(name: str, values: Any, allowed: str) -> None:
    """Each is refused in one line that says what is allowed; a config refuses what is no number."""
    with pytest.raises(SpaceError, match=allowed) as refused:
        Space({name: values})
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)
    if isinstance(values, list) and len(values) == 1 and name != "BLOCK":
        if type(values[0]) is int:
            assert Space.from_configs([{name: values[0]}]).first() == Config(
                {}, **{name: values[0]}
            )
            return
        with pytest.raises(SpaceError, match=f"{name} is .*: expected a whole number"):
            Config({}, **{name: values[0]})
        with pytest.raises(SpaceError, match="expected a whole number"):
            Space.from_configs([{name: values[0]}])


@pytest.mark.parametrize("given_", [None, [], "BLOCK", {1: [2]}, 7])
def test_what_is_no_mapping_of_names(given_: Any) -> None:
    """Axes and constexprs are mappings of names; options stand beside the constexprs."""
    with pytest.raises(SpaceError, match="expected a list of values by axis name"):
        Space(given_)
    for kwargs in (given_, {"num_warps": 4}):
        with pytest.raises(SpaceError, match="config: "):
            Config(kwargs)


HUGE = {name: range(60) for name in "ABCDEFGH"}


@pytest.mark.parametrize("space", [Space(HUGE), Space(HUGE).where("even", lambda A: A % 2 == 0)])
def test_a_space_that_is_too_large_is_refused_before_it_is_made(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one line with size, limit and ways out, and no column or config is made."""
    monkeypatch.setattr(Config, "from_dict", pytest.fail)
    made: list[int] = []
    tile = table_module.np.tile
    monkeypatch.setattr(
        table_module.np, "tile", lambda row, count: made.append(count) or tile(row, count)
    )
    with pytest.raises(SpaceError) as caught:
        space.configs()
    text = str(caught.value)
    assert "\n" not in text
    assert f"{space.size:,}" in text
    assert f"{MOST:,}" in text
    assert "constraint" in text
    assert len(made) == len(space.constraints)


def test_constraints_that_name_some_axes_make_a_huge_product_small() -> None:
    """Axes that no constraint names are bound last, whatever their place in the order."""
    space = Space({"Z": range(1000), **HUGE, "num_warps": (4, 8)}).where("last", lambda H: H == 1)
    for one, other in itertools.pairwise("ABCDEFG"):
        equal = eval(f"lambda {one}, {other}: {one} == {other}")
        space = space.where(f"{one} is {other}", equal)
    points = space.where("few", lambda A: A in (3, 5)).points()
    assert len(points) == 1000 * 2 * 2
    assert [points[0].kwargs[name] for name in "ZAGH"] == [0, 3, 3, 1]
    assert [config.kwargs["Z"] for config in points[::4]] == list(range(1000))


@given(constrained(), st.integers(0, 9), st.data())
def test_points_are_the_configs(
    drawn: tuple[dict[str, list[int]], list[tuple[tuple[str, ...], int]]],
    size: int,
    data: st.DataObject,
) -> None:
    """Configs made of columns are those of the list, in groups, behind a default and found."""
    axes, conditions = drawn
    space = Space({**axes, "num_warps": (4, 8)})
    for number, (names, divisor) in enumerate(conditions):
        space = space.where(f"condition {number}", predicate_on(names, divisor))
    points = space.points(M=size)
    configs = list(points)
    assert [points[place] for place in range(len(points))] == configs
    listed = SpaceTable.of(configs)
    names = data.draw(st.lists(st.sampled_from([*axes, "num_warps"]), unique=True))
    values = [tuple(config.all_kwargs()[name] for name in names) for config in configs]
    for one in (points, listed) if configs else (points,):
        first, back = one.groups(names)
        assert [values[place] for place in first] == list(dict.fromkeys(values))
        assert [values[first[group]] for group in back] == values
    if configs:
        default = data.draw(st.sampled_from(configs))
        assert list(points.led_by(default)) == list(dict.fromkeys([default, *configs]))
        assert configs[points.find(default) or 0] == default
        assert list(listed.led_by(default)) == list(dict.fromkeys([default, *configs]))
    other = Config(dict.fromkeys(axes, 99), num_stages=5)
    assert points.find(other) is None
    assert list(points.led_by(other)) == [other, *configs]


def test_constraints_are_functions() -> None:
    """A function is named by its own name."""
    space = Space({"BLOCK": [32, 64]}, constraints=[fits])
    assert [config.kwargs["BLOCK"] for config in space] == [32]
    assert space.constraints[0].name == "fits"
