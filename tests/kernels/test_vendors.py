"""The vendors' functions that public functions name as alternatives."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from asmtune.core.alternatives import call_of
from asmtune.kernels import _gemm_host, _hopper_attention_backward, _scaled
from asmtune.kernels._attention_spec import has_vendor
from asmtune.kernels._common import is_expanded
from asmtune.runtime.options import deterministic
from asmtune.workshop.kernel_checks.reports import as_tuple
from asmtune.workshop.kernel_checks.tolerances import excess
from tests.kernels.accuracy import KERNELS, case_of, module_of, tuners_of
from tests.kernels.cases.attention import ROUNDED
from tests.kernels.made import noted_launches

WITH_VENDOR = [name for name in KERNELS if hasattr(module_of(name), "_alone")]
ON_GPU = ("attention", "attention_fp8", "scaled_matmul")
ON_HOST = [name for name in WITH_VENDOR if name not in ON_GPU]


def launched_of(module: Any) -> dict[str, Any]:
    """Return the functions that a module's tuners call in the place of a launch, by name."""
    tuners = [getattr(module, name) for name in tuners_of(module)]
    return {
        name: function
        for tuner in tuners
        for name, function in (tuner.options.choices.get("alternatives") or {}).items()
    }


@pytest.fixture(autouse=True)
def functions_for_gpus_alone() -> Iterator[None]:
    """Let vendors' functions that have no code for CPUs be others of PyTorch's."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("cudnn_convolution_relu", convolution_relu, "CPU")
        yield


def convolution_relu(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """Compute what cuDNN's kernel of this name does."""
    return torch.nn.functional.conv2d(x, weight, bias, stride, padding, dilation, groups).relu()


@pytest.mark.parametrize("name", WITH_VENDOR)
def test_vendors_have_one_name_and_one_interface(name: str) -> None:
    """A winner's name stands for a launch and for the whole function, of the same arguments."""
    module = module_of(name)
    public = getattr(module, name)
    assert inspect.signature(public).parameters["vendor"].default is True
    launched = launched_of(module)
    assert launched.keys() == public.prepared.alternatives.keys()
    assert "alternatives" not in module._alone.options.choices
    if "gluon" in launched:
        assert inspect.signature(public).parameters["gluon"].default is True
        assert [*module._beside_gluon.options.choices["alternatives"]] == ["gluon"]
        others = module._beside_vendor.options.choices["alternatives"].keys()
        assert others == launched.keys() - {"gluon"}
    assert module._alone.options.key == module._tuned.options.key


@pytest.mark.parametrize("name", [name for name in ON_HOST if name != "conv2d"])
def test_vendors_write_what_the_kernel_writes(name: str) -> None:
    """Called with a launch's arguments, each writes the kernel's outputs."""
    torch.manual_seed(0)
    module = module_of(name)
    for shape in case_of(name).shapes[:2]:
        problem = module.problem(shape, "fp32", "cpu")
        for output in module.OUTPUTS:
            problem.arguments[output].fill_(float("nan"))
        for who, function in launched_of(module).items():
            if who == "gluon":  # it needs its GPU
                continue
            call_of(function, module.kernel.arg_names, problem.arguments)()
        for output, want in zip(
            module.OUTPUTS, as_tuple(module.reference(problem.arguments)), strict=True
        ):
            assert excess(problem.arguments[output], want, {}) <= 1, (shape, output)


@pytest.mark.parametrize("name", ON_HOST)
def test_vendors_return_what_the_function_returns(name: str) -> None:
    """Called as the public function is, each gives its result, for every further argument."""
    torch.manual_seed(0)
    module, case = module_of(name), case_of(name)
    for who, function in getattr(module, name).prepared.alternatives.items():
        if who == "gluon":
            continue
        for more in ({}, *case.keywords):
            given: dict[str, Any] = {**module.inputs(case.shapes[0], "fp32", "cpu"), **more}
            wanted = as_tuple(module.baseline(**given))
            for got in (function(**given), function(**given, vendor=True)):
                for one, want in zip(as_tuple(got), wanted, strict=True):
                    assert excess(one, want.double(), {}) <= 1, more


LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
WAYS: tuple[tuple[dict[str, Any], str | None], ...] = (
    ({}, "cudnn"),
    ({"relu": True}, "cudnn_convolution_relu"),
    ({"bias": True}, "cudnn_with_bias"),
    ({"bias": True, "relu": True}, "cudnn_convolution_relu"),
    ({"groups": 2, "bias": True, "relu": True}, "cudnn_convolution_relu"),
    ({"stride": (2, 1), "padding": (0, 3), "dilation": (1, 2), "bias": True}, "cudnn_with_bias"),
    ({"channels": 8, "relu": True}, None),
    ({"channels": 8, "dilation": 2}, "cudnn"),
    ({"channels": 8, "taps": 1}, "cudnn"),
    ({"vendor": False, "relu": True}, None),
)
"""Ways to call `conv2d`, and what is called in the place of a launch if it wins."""


@pytest.mark.parametrize(("way", "who"), WAYS)
@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
def test_cudnn_gets_what_a_convolution_has(
    way: dict[str, Any], who: str | None, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name says whether there is a bias or ReLU; results are those of float64 in each way."""
    torch.manual_seed(0)
    module, options = module_of("conv2d"), dict(way)
    depth, taps, groups = options.pop("channels", 40), options.pop("taps", 3), way.get("groups", 1)
    has_bias = options.pop("bias", False)
    x, weight = torch.randn(2, depth, 7, 9), torch.randn(6, depth // groups, taps, taps)
    device = "meta" if who is None else "cpu"  # a copy of few channels is a launch of its own
    x, weight = (t.to(device, memory_format=LAYOUTS[layout]) for t in (x, weight))
    bias = torch.randn(6) if has_bias else None
    launches = noted_launches(monkeypatch, called=True)
    got = module.conv2d.prepared.ordinary(x, weight, bias, **options)
    assert [name for names in launches for name in names] == ([] if who is None else [who])
    if who is None:
        return
    options.pop("vendor", None)
    double = None if bias is None else bias.double()
    want = module.baseline(x.double(), weight.double(), double, **options)
    whole = module.conv2d.prepared.alternatives[who](x, weight, bias, **options)
    for result in (got, whole):
        assert excess(result, want) <= 1
        assert result.stride() == got.stride()
        assert result.is_contiguous(memory_format=torch.channels_last)


def test_attention_asks_the_vendor_for_what_it_computes_alone() -> None:
    """Windows, padding, masks, dropout and oblong diagonals are ours."""
    module = module_of("attention")
    q, k = torch.zeros(1, 4, 8, 16), torch.zeros(1, 2, 8, 16)
    how = module.Attending
    assert has_vendor(q, q, how(causal=True))
    assert has_vendor(q, q[:, :, :4], how())
    assert not has_vendor(q, q[:, :, :4], how(causal=True))
    assert has_vendor(q, k, how())
    masks: list[dict[str, Any]] = [{"window": 2}, {"window": (None, 3)}, {"dropout": 0.1}]
    for options in (*masks, {"padding": torch.ones(1)}, {"mask": torch.ones(1)}):
        assert not has_vendor(q, q, how(**options))
    for window, hides in ((7, True), (8, False), ((None, 6), True), ((9, 7), False)):
        checked = how(window=window).checked("attention", q, q)
        assert has_vendor(q, q, checked) is not hides
    assert how(window=(3, 7)).checked("attention", q, q).sides == (3, None)


LENGTHS = torch.tensor([0, 75])
FP8_WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True, "scale": 0.3},
    {"window": 9},
    {"window": 9, "causal": True},
    {"window": (4, 7)},
    {"window": (None, 20)},
    {"window": (None, 0)},
    {"window": (300, 300)},
    {"padding": LENGTHS},
    {"padding": LENGTHS.int(), "causal": True},
    {"padding": torch.arange(96).expand(2, 96) % 3 > 0},
    {"mask": torch.arange(96)[None, None, None] % 5 > 0},
    {"mask": torch.linspace(-2, 2, 96)[None, None, None], "window": (50, None)},
)
"""Options of `attention_fp8`."""


def scales_of(group: int, keys: int, channels: int) -> torch.Tensor:
    """Scales of as many keys, 0 for one number, -1 for one a channel."""
    if group == 0:
        return torch.tensor(0.37)
    groups = -(-keys // group) if group > 0 else 1
    return torch.rand(2, 2, groups, channels if group < 0 else 1) + 0.5


@pytest.mark.parametrize("options", FP8_WAYS, ids=str)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_dequantised_gets_what_it_takes(
    options: dict[str, Any], kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called as a launch and as the function, with each option, it is right to float64."""
    torch.manual_seed(0)
    module, exact = module_of("attention_fp8"), module_of("attention").baseline
    q = torch.randn(2, 4, 70, 32).to(kind)
    for place, (group, format_k) in enumerate(
        ((0, torch.float8_e4m3fn), (-1, torch.float8_e5m2), (32, torch.float8_e4m3fn))
    ):
        k, v = (torch.randn(2, 2, 96, 32).to(one) for one in (format_k, torch.float8_e4m3fn))
        given = (q, k, v, scales_of(group, 96, 32), scales_of((1, 0, -1)[place], 96, 32))

        def attend(q: Any, k: Any, v: Any, **more: Any) -> Any:
            assert k.dtype == v.dtype == kind
            return exact(q.double(), k.double(), v.double(), **more).to(kind)

        monkeypatch.setattr("asmtune.kernels._attention_fp8.attention", attend)
        monkeypatch.setattr("asmtune.kernels._attention_fp8.widened", module.dequantised)
        noted_launches(monkeypatch, called=True)
        wide = [x.double() for x in given]
        want = module.baseline(*wide, **options)
        whole = module.attention_fp8.prepared.alternatives["dequantised"]
        for got in (
            module.attention_fp8.prepared.ordinary(*given, **options),
            whole(*given, **options),
        ):
            assert got.dtype == kind
            assert excess(got, want, ROUNDED) <= 1


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"dtype": torch.bfloat16, "heads": 4}, True),
        ({"dtype": torch.float32}, False),
        ({"dim": 32}, False),
        ({"window": (None, 3)}, False),
        ({"window": (None, 3), "causal": True}, True),
        ({"dropout": 0.1}, False),
        ({"padding": torch.ones(1)}, False),
        ({"mask": torch.ones(1)}, False),
    ],
)
def test_attention_asks_gluon_for_what_it_computes(
    changed: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads of 64 and 128 in 16 bits without a mask, shared keys too; expanded heads are not."""
    module = module_of("attention")
    monkeypatch.setattr(module, "is_hopper", lambda _: True)
    options = dict(changed)
    shape = (2, options.pop("heads", 2), 8, options.pop("dim", 64))
    kind = options.pop("dtype", torch.float16)
    q, k = torch.zeros(shape, dtype=kind), torch.zeros(2, 2, 8, shape[3], dtype=kind)
    how = module.Attending(**options)
    assert module._fits_hopper((q, k, k), how) is fits
    assert not module._fits_hopper((q, k[:1].expand(2, -1, -1, -1), k), how)
    monkeypatch.setattr(module, "is_hopper", lambda _: False)
    assert not module._fits_hopper((q, k, k), how)


def test_products_ask_gluon_for_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at multiples of 16 bytes in 16 bits; neither expanded batches nor A along M."""
    monkeypatch.setattr(_gemm_host, "is_hopper", lambda _: True)
    a, b = torch.zeros(2, 24, 16).half(), torch.zeros(2, 16, 8).half()

    def fits(a: torch.Tensor, b: torch.Tensor) -> bool:
        operands = _gemm_host.product("matmul", a, b, None, "none")
        c = torch.empty(*operands.a.shape[:2], b.shape[-1], dtype=a.dtype)
        return _gemm_host._fits_hopper(operands.arguments(c))

    assert fits(a, b)
    assert fits(a[0], b.mT.contiguous().mT[0])
    assert not fits(a, b[0])
    assert not fits(a, b[..., :7])
    assert not fits(a.mT.contiguous().mT, b)
    assert not fits(a.float(), b.float())
    monkeypatch.setattr(_gemm_host, "is_hopper", lambda _: False)
    assert not fits(a, b)


@pytest.mark.parametrize("vendor", [False, True])
@pytest.mark.parametrize("gluon", [False, True])
@pytest.mark.parametrize("name", ["matmul", "linear", "scaled_matmul", "attention"])
def test_arguments_choose_the_alternatives(
    name: str, gluon: bool, vendor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vendor=False` leaves the vendor's functions out, `gluon=False` the kernel for Hopper."""
    module = module_of(name)
    for place in (module, _gemm_host, _scaled):
        monkeypatch.setattr(place, "is_hopper", lambda _: True, raising=False)
    monkeypatch.setattr(module_of("scaled_matmul"), "_capability", lambda _: (9, 0))
    launches = noted_launches(monkeypatch)
    shape = {"batch": 1, "M": 64, "N": 64, "K": 64} | {"B": 1, "H": 1, "KV": 1, "D": 64}
    shape |= {"causal": 1, "GROUP_A": 0, "GROUP_B": 0, "GROUP_K": 0}
    given = module.inputs(shape, "fp8e4nv" if name == "scaled_matmul" else "fp16", "cpu")
    getattr(module, name).prepared.ordinary(**given, vendor=vendor, gluon=gluon)
    (names,) = launches
    assert ("gluon" in names, len(names - {"gluon"}) > 0) == (gluon, vendor)


def chosen_backward(monkeypatch: pytest.MonkeyPatch, **more: Any) -> str | int:
    """Return "gluon" if a backward pass of `attention` takes that kernel, else its launches."""
    launches, taken = noted_launches(monkeypatch), []
    for place in ("attention", "attention_backward"):
        monkeypatch.setattr(module_of(place), "is_hopper", lambda _: True)

    def made(given: dict[str, torch.Tensor], *, causal: bool, scale: float) -> Any:
        taken.append((causal, scale))
        assert not any(is_expanded(x) for x in given.values())
        return tuple(torch.zeros_like(given[name]) for name in "qkv")

    monkeypatch.setattr(_hopper_attention_backward, "gradients", made)
    N, D = more.pop("N", 1024), more.pop("D", 64)
    given = module_of("attention").inputs(
        {"B": 1, "H": 2, "KV": more.pop("KV", 2), "M": N, "N": N, "D": D, "causal": 0},
        more.pop("dtype", "fp16"),
        "cpu",
    )
    for name in "qkv":
        given[name].requires_grad_()
    given |= {"causal": True, "scale": 0.5, **more}
    module_of("attention").attention(**given).sum().backward()
    assert taken in ([], [(given["causal"], 0.5)])
    assert not set().union(*launches[1:])
    return "gluon" if taken else len(launches) - 1


@pytest.mark.parametrize(
    ("more", "chosen"),
    [
        ({}, "gluon"),
        ({"vendor": False}, "gluon"),
        ({"KV": 1, "dtype": "bf16"}, "gluon"),
        ({"causal": False, "D": 128}, "gluon"),
        ({"causal": False, "N": 1025}, "gluon"),
        ({"N": 1023}, 2),
        ({"causal": False}, 2),
        ({"gluon": False}, 2),
        ({"D": 32}, 2),
        ({"window": 5}, 2),
        ({"dropout": 0.1}, 2),
        ({"dtype": "fp32"}, 2),
        ({"mask": torch.ones(1, 1, 1, 1024) > 0}, 2),
    ],
    ids=str,
)
def test_backward_is_gluons_or_two_launches(
    more: dict[str, Any], chosen: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Hopper the Gluon kernel takes what it is faster at; the rest is two launches."""
    assert chosen_backward(monkeypatch, **more) == chosen


def test_backward_repeats_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under PyTorch's switch or asmtune's it is the two launches."""
    with deterministic():
        assert chosen_backward(monkeypatch) == 2
    torch.use_deterministic_algorithms(True)
    try:
        assert chosen_backward(monkeypatch) == 2
    finally:
        torch.use_deterministic_algorithms(False)
