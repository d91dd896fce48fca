"""Launches that compiled programs make by an operator: caps, clusters, each size's own winner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops import triton_kernel_wrap
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from triton.tools.tensor_descriptor import TensorDescriptor

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.runtime import torch_compile, torch_op
from asmtune.runtime.events import UntunedWarning
from asmtune.runtime.launch.planning import LaunchWarning
from asmtune.runtime.patching.redirect import patch
from asmtune.triton_api import compiled_graphs
from tests.dispatch import torch_kernels
from tests.dispatch.test_torch_compile import adder, check, compiled, decorated
from tests.dispatch.torch_support import Imagined

CAPPED = Config({"BLOCK": 128}, num_warps=8, maxnreg=64)
CLUSTER = Config({"BLOCK": 32}, num_ctas=2)
SPACE = Space({"BLOCK": [32, 64, 128], "num_warps": [4, 8], "num_ctas": [1, 2]})


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A launch with another config than its winner fails the test that does not expect it."""
    monkeypatch.setattr(torch_op, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntunedWarning)
        warnings.simplefilter("error", LaunchWarning)
        yield


def launched(machine: Imagined, *names: str) -> list[tuple[Any, ...]]:
    """Values of the launches since the last look."""
    seen = [tuple(made.get(name) for name in names) for made in machine.launches]
    machine.launches.clear()
    return seen


def tuned(machine: Imagined, winners: dict[int, Config]) -> Any:
    """A kernel whose winner differs from size to size."""
    kernel = decorated(space=SPACE)
    for n, machine.winner in winners.items():
        check(adder(kernel), n)
    machine.launches.clear()
    return kernel


def traced_configs(graph: torch.fx.GraphModule) -> list[Any]:
    """Configs of the only kernel that PyTorch launches in a graph."""
    (node,) = [node for node in graph.graph.nodes if "kernel_idx" in node.kwargs]
    return list(kernel_side_table.get_kernel(node.kwargs["kernel_idx"]).configs)


@pytest.mark.parametrize("winner", [CAPPED, CLUSTER], ids=["maxnreg", "num_ctas"])
def test_a_winner_reaches_the_program_whole(machine: Imagined, winner: Config) -> None:
    """A compiled launch has the winner's cap and cluster, from memory or the store."""
    kernel = tuned(machine, {1000: winner})
    check(compiled(kernel), 1000, 1000)
    check(compiled(decorated(space=SPACE)), 1000)
    options = (winner.kwargs["BLOCK"], winner.num_warps, winner.num_ctas, winner.maxnreg)
    assert launched(machine, "BLOCK", "num_warps", "num_ctas", "maxnreg") == [options] * 3
    assert len(machine.tuned) == 1


@pytest.mark.parametrize("marked", [False, True], ids=["dynamic", "mark_dynamic"])
def test_each_size_has_its_winner(machine: Imagined, marked: bool) -> None:
    """One graph of a dynamic size launches each key with that key's own winner."""
    kernel = tuned(machine, {1000: CAPPED, 2000: CLUSTER})
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph

    graph = compiled(kernel, dynamic=None if marked else True, backend=backend)
    for n in (1000, 2000, 1000):
        x, y = torch.randn(2, n)
        if marked:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 0)
        torch.testing.assert_close(graph(x, y), (x + 1 + y) * 2)
    assert launched(machine, "BLOCK", "num_ctas", "maxnreg") == [
        (128, 1, 64), (32, 2, None), (128, 1, 64)
    ]  # fmt: skip
    assert len(graphs) == 1
    assert len(machine.tuned) == 2


def typed(block: int, dtype: Any, parts: tuple[int, int], **options: Any) -> Config:
    """A config with values that JSON has no form for."""
    return Config({"BLOCK": block, "DTYPE": dtype, "PARTS": parts}, **options)


TYPED = (
    typed(32, tl.float32, (2, 16)),
    typed(128, tl.float64, (8, 16), num_warps=8),
    typed(64, tl.float64, (4, 16), maxnreg=64),
)


@pytest.mark.parametrize("listed", [True, False], ids=["list", "axes"])
def test_stored_dtypes_and_tuples(machine: Imagined, listed: bool) -> None:
    """Each size gets its stored winner in another process, though dtypes are stored as text."""
    axes = {
        "BLOCK": [32, 64, 128], "DTYPE": [tl.float32, tl.float64],
        "PARTS": [(2, 16), (8, 16), (4, 16)], "num_warps": [4, 8], "maxnreg": [None, 64],
    }  # fmt: skip
    space = Space.from_configs(TYPED) if listed else Space(axes, default=TYPED[0])
    kernel = decorated(torch_kernels.add_typed, space=space)
    for n, machine.winner in {1000: TYPED[1], 2000: TYPED[2]}.items():
        check(adder(kernel), n)
    machine.launches.clear()
    other = decorated(torch_kernels.add_typed, space=space)
    check(compiled(other, dynamic=True), 1000, 2000)
    names = ("BLOCK", "DTYPE", "PARTS", "num_warps", "maxnreg")
    assert launched(machine, *names) == [
        (128, tl.float64, (8, 16), 8, None), (64, tl.float64, (4, 16), 4, 64)
    ]  # fmt: skip
    assert len(machine.tuned) == 2


def test_keys_that_the_graph_did_not_know(machine: Imagined) -> None:
    """Untuned keys get the traced config with one warning, and their winners once tuned.

    A winner whose values no key had when the graph was made has no grid in it.
    """
    kernel = tuned(machine, {1000: CAPPED, 2000: CLUSTER})
    graph = compiled(kernel, dynamic=True)
    with pytest.warns(UntunedWarning, match="add at n=3000.*not tuned.*maxnreg=64") as seen:
        check(graph, 1000, 3000, 5000)
    assert [warning.category for warning in seen].count(UntunedWarning) == 1
    assert launched(machine, "BLOCK") == [(128,)] * 3
    machine.winner = Config({"BLOCK": 32}, num_warps=8)
    check(adder(kernel), 3000)
    machine.winner = Config({"BLOCK": 64}, num_warps=8)
    check(adder(kernel), 4000)
    check(graph, 3000, 4000)
    assert launched(machine, "BLOCK", "num_warps")[2:] == [(32, 8), (128, 8)]
    assert len(machine.tuned) == 4


@pytest.mark.slow(seconds=8)
def test_inductor_calls_the_operator(machine: Imagined) -> None:
    """Inductor's own program calls the operator, and copies nothing for it."""
    from torch._inductor.utils import run_and_get_code

    kernel = tuned(machine, {1000: CAPPED, 2000: CLUSTER})
    graph = compiled(kernel, backend="inductor", dynamic=True)
    x, y = torch.randn(2, 1000)
    with torch._inductor.config.patch(force_disable_caches=True, compile_threads=1):
        out, (code, *_) = run_and_get_code(graph, x, y)
    torch.testing.assert_close(out, (x + 1 + y) * 2)
    check(graph, 2000)
    assert code.count("torch.ops.asmtune.launch.default(") == 1
    assert code.count(" = empty_strided_cpu(") == 2  # x + 1, and out, which becomes out * 2
    assert launched(machine, "BLOCK", "num_ctas", "maxnreg") == [(128, 1, 64), (32, 2, None)]


def test_gradients(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capped kernel in a function's forward and backward gives the right gradient."""
    machine.winner = CAPPED
    monkeypatch.setattr(torch_kernels, "doubling", decorated())
    function: Callable[..., Any] = lambda x: torch_kernels.Doubled.apply(x).sum()  # noqa: E731
    function(torch.randn(1000))
    x = torch.randn(1000, requires_grad=True)
    torch.compile(function, backend="aot_eager", fullgraph=True)(x).backward()
    assert torch.equal(x.grad, torch.full((1000,), 2.0))
    assert launched(machine, "maxnreg") == [(64,)] * 3


def test_an_argument_that_is_changed_in_place(machine: Imagined) -> None:
    """The operator names what the kernel writes: a program's own tensor is changed once."""
    kernel = tuned(machine, {1000: CAPPED})

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n = x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out_ptr=x, n=n)
        return x + 1

    x, y = torch.randn(2, 1000)
    expected = x + y
    out = torch.compile(function, backend="aot_eager", fullgraph=True)(x, y)
    torch.testing.assert_close((x, out), (expected, expected + 1))
    assert launched(machine, "maxnreg") == [(64,)]


def test_what_any_config_writes(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator names what one of its configs writes; a parameter `num_warps` is no obstacle."""

    def run(x: Any, y: Any, out: Any, n: int, kept: Any, **values: Any) -> None:
        machine.launches.append(values)
        for written in (out, kept)[: 1 + values["KEEP"]]:
            written.copy_(x + y)

    monkeypatch.setattr(torch_kernels.add_kept, "run", run)
    listed = [Config({"BLOCK": b, "KEEP": b > 64}, num_warps=b // 16, maxnreg=b) for b in (64, 128)]
    kernel = decorated(torch_kernels.add_kept, space=Space.from_configs(listed))
    operators: list[Any] = []

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, kept, n = torch.zeros_like(x), torch.zeros_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, kept)
        return out, kept

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        operators.extend(node for node in graph.graph.nodes if "asmtune" in str(node.target))
        return graph

    graph = torch.compile(function, backend=backend, fullgraph=True, dynamic=True)
    for n, machine.winner in zip((1000, 2000), listed, strict=True):
        function(*torch.randn(2, n))
    machine.launches.clear()
    for n in (1000, 2000):
        x, y = torch.randn(2, n)
        torch.testing.assert_close(graph(x, y), (x + y, (x + y) * (n > 1000)))
    assert launched(machine, "BLOCK", "num_warps", "maxnreg") == [(64, 4, 64), (128, 8, 128)]
    (operator,) = operators
    counts = [len(operator.kwargs[name]) for name in ("written", "read", "numbers")]
    assert counts == [2, 2, 1]


@pytest.mark.parametrize("winner", [CAPPED, Config({"BLOCK": 128})], ids=["capped", "plain"])
def test_a_branch(machine: Imagined, winner: Config) -> None:
    """A capped launch may stand in a branch of `torch.cond`, as PyTorch's own may."""
    add = adder(tuned(machine, {1000: winner}))
    function = lambda x, y: torch.cond(x[0] > 0, add, lambda x, y: x - y, (x, y))  # noqa: E731
    graph = torch.compile(function, backend="aot_eager", fullgraph=True)
    for sign in (1, -1):
        x, y = torch.full((1000,), float(sign)), torch.ones(1000)
        torch.testing.assert_close(graph(x, y), (x + 1 + y) * 2 if sign > 0 else x - y)
    assert launched(machine, "maxnreg") == [(winner.maxnreg,)]


def test_a_hook(machine: Imagined) -> None:
    """The hook of a config that a program put into `kernel.cache` runs before each launch."""
    calls: list[int] = []
    kernel = tuned(machine, {1000: CAPPED})
    (key,) = kernel.cache
    hook = lambda values: calls.append(values["n"])  # noqa: E731
    kernel.cache[key] = triton.Config({"BLOCK": 128}, maxnreg=64, pre_hook=hook)
    check(compiled(kernel, dynamic=True), 1000, 1000)
    assert calls == [1000, 1000]


def test_triton_op(machine: Imagined) -> None:
    """Under `wrap_triton` a traced launch has the cap as well."""
    kernel = tuned(machine, {1000: CAPPED})

    @torch.library.triton_op("asmtune_tests::capped_add", mutates_args={})
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out, n = torch.empty_like(x), x.numel()
        torch.library.wrap_triton(kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
            x, y, out, n
        )
        return out

    function = torch.compile(lambda x, y: add(x + 1, y) * 2, backend="aot_eager", fullgraph=True)
    check(function, 1000)
    assert launched(machine, "BLOCK", "maxnreg") == [(128, 64)]


@pytest.mark.slow(seconds=1)
def test_heuristics_below(machine: Imagined) -> None:
    """`@triton.heuristics` underneath see the tuned values, and are no part of the config."""
    rules = triton.heuristics({"EVEN": lambda values: 1024 % values["BLOCK"] == 0})
    kernel = decorated(rules(torch_kernels.add_even))
    for n, machine.winner in {1024: CAPPED, 2048: CLUSTER}.items():
        check(adder(kernel), n)
    machine.launches.clear()
    check(compiled(kernel, dynamic=True), 1024, 2048)
    assert launched(machine, "BLOCK", "EVEN", "maxnreg") == [(128, True, 64), (32, True, None)]


def test_heuristics_above(machine: Imagined) -> None:
    """`@triton.heuristics` on top of the decorator hand their values on to the operator."""
    machine.winner = CAPPED
    rules = triton.heuristics({"EVEN": lambda values: values["n"] % 32 == 0})
    kernel = rules(decorated(torch_kernels.add_even))
    check(adder(kernel), 1024)
    check(compiled(kernel), 1024)
    assert launched(machine, "BLOCK", "EVEN", "maxnreg") == [(128, True, 64)] * 2


def test_a_patched_program(machine: Imagined) -> None:
    """Under `patch()` a kernel of `triton.autotune` has its cap in a compiled program."""
    machine.winner = CAPPED
    with patch(small=None):
        listed = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 128}, num_warps=8)]
        kernel = triton.autotune(listed, key=["n"])(torch_kernels.add)
        check(adder(kernel), 1000)
        check(compiled(kernel), 1000)
    assert launched(machine, "BLOCK", "maxnreg") == [(128, 64)] * 2


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program(machine: Imagined, strict: bool) -> None:
    """An exported program, which runs without asmtune, has PyTorch's own launch and one notice."""
    machine.others = [Config({"BLOCK": 128}, num_ctas=2), Config({"BLOCK": 32})]
    kernel = tuned(machine, {1000: CAPPED})
    add = adder(kernel if strict else torch.library.wrap_triton(kernel))

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return add(x, y)

    with pytest.warns(LaunchWarning, match=r"^kernel add in a compiled .*maxnreg=64$") as seen:
        program = torch.export.export(Module(), (*torch.randn(2, 1000),), strict=strict)
    assert [warning.category for warning in seen].count(LaunchWarning) == 1
    (config,) = traced_configs(program.graph_module)
    assert (config.kwargs, config.maxnreg) == ({"BLOCK": 32}, None)


def test_a_descriptor(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch with a host's tensor descriptor is PyTorch's own, with one notice."""
    launches: list[dict[str, Any]] = []
    monkeypatch.setattr("torch.utils._triton.has_triton_tensor_descriptor_host_tma", lambda: True)
    monkeypatch.setattr(
        torch_kernels.copy_tile, "run", lambda *_, **values: launches.append(values)
    )
    kernel = decorated(torch_kernels.copy_tile, space=Space.from_configs([CAPPED, CLUSTER]))

    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(16, 16)
        kernel[(1,)](TensorDescriptor.from_tensor(x, [16, 16]), out, 1000)
        return out

    warnings.simplefilter("ignore", UntunedWarning)
    with pytest.warns(LaunchWarning, match="tile is a tensor descriptor; it goes on with BLOCK="):
        torch.compile(function, backend="aot_eager", fullgraph=True)(torch.ones(16, 16))
    assert [values.get("maxnreg") for values in launches] == [None]


@pytest.mark.parametrize("dynamic", [True, None])
def test_a_float_that_changes(
    machine: Imagined, monkeypatch: pytest.MonkeyPatch, dynamic: bool | None
) -> None:
    """A launch whose scale changes from call to call is PyTorch's own, with one notice."""
    monkeypatch.setattr(
        torch_kernels.add_scaled, "run", lambda *_, **values: machine.launches.append(values)
    )
    kernel = decorated(torch_kernels.add_scaled, space=Space.from_configs([CAPPED, CLUSTER]))

    def function(x: torch.Tensor, scale: float) -> torch.Tensor:
        out, n = torch.zeros_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, x, out, n, scale)
        return out

    graph = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    warnings.simplefilter("ignore", UntunedWarning)
    with pytest.warns(LaunchWarning, match="scale is a number with a fraction that may change"):
        [graph(torch.randn(1000), scale) for scale in (1.5, 2.5, 3.5)]
    assert launched(machine, "BLOCK", "maxnreg")[-2:] == [(128, None)] * 2


def test_an_unknown_compiler(machine: Imagined, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler whose methods are others gets the best config that it can take, with a notice."""
    kernel = tuned(machine, {1000: CAPPED})
    hopifier = triton_kernel_wrap.TracingTritonHOPifier
    monkeypatch.setattr(hopifier, "call_HOP", lambda *_: None)
    with pytest.warns(LaunchWarning, match="not one that asmtune knows"):
        check(compiled(kernel), 1000)
    assert launched(machine, "BLOCK", "maxnreg") == [(128, None)]


def test_what_inductor_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own functions say what reaches Triton; a newer one may hand on more."""
    from torch._inductor.runtime import triton_heuristics as inductor

    compiled_graphs.carried_options.cache_clear()
    assert compiled_graphs.carried_options() == set()
    create, values = inductor.CachingAutotuner._create_compile_options, inductor.config_to_dict
    monkeypatch.setattr(
        inductor.CachingAutotuner,
        "_create_compile_options",
        lambda self, config, meta: {**create(self, config, meta), "maxnreg": config.maxnreg},
    )
    monkeypatch.setattr(
        inductor, "config_to_dict", lambda config: {**values(config), "maxnreg": config.maxnreg}
    )
    compiled_graphs.carried_options.cache_clear()
    assert compiled_graphs.carried_options() == {"maxnreg"}
    compiled_graphs.carried_options.cache_clear()


def test_a_carried_cap_needs_no_operator(
    machine: Imagined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Inductor hands a cap on, it gets the capped config, and no operator."""
    monkeypatch.setattr(torch_compile, "carried_options", lambda: {"maxnreg"})
    kernel = tuned(machine, {1000: CAPPED})
    traced: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        traced.extend(traced_configs(graph))
        return graph

    check(compiled(kernel, backend=backend), 1000)
    assert [(config.kwargs, config.maxnreg) for config in traced] == [({"BLOCK": 128}, 64)]


class StubKernel:
    """A kernel whose launches are noted."""

    __name__ = "stub"

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **named: self.launches.append((grid, args, named))


def site_of(kernel: Any, value: Any = 8) -> torch_op.LaunchSite:
    """A launch of `stub[grid](x, n=value)`."""
    origin = torch_op.LaunchOrigin(kernel, ("x",))
    return torch_op.LaunchSite(origin, ("x",), (("n", value),), (CAPPED, CLUSTER))


def test_the_grid_of_a_launch() -> None:
    """Each config of the graph has its own grid; a plan of another one gets None, and gives way."""
    kernel, x = StubKernel(), torch.zeros(1)
    site_of(kernel).launch([x], (0, 1, 1, 0, 1, 1))  # no programs, as in Triton
    site_of(kernel).launch([x], (7, 1, 1, 9, 1, 1))
    ((grid, args, named),) = kernel.launches
    assert (args, named) == ((x,), {"n": 8})
    assert [grid({"n": 8, "BLOCK": block}) for block in (128, 32)] == [(7, 1, 1), (9, 1, 1)]
    assert grid({"n": 8, "BLOCK": 256}) is None


def test_names_of_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal launches share a name, in other processes too; an unknown name is told."""
    kernel = StubKernel()
    monkeypatch.setattr(torch_op, "_sites", {})
    names = [torch_op.site_name(site_of(kernel, value)) for value in (1, True, 1)]
    assert names[0] == names[2] != names[1]
    assert torch_op.site_name(site_of(StubKernel(), 1)) not in names
    torch_op._sites.clear()  # as where launches are traced in another order
    assert [torch_op.site_name(site_of(kernel, value)) for value in (True, 1)] == names[1::-1]
    torch_op._operator()
    with pytest.raises(InputError, match=r"^launch 'lost:0' of a compiled program: it was traced"):
        torch.ops.asmtune.launch(
            written=[torch.zeros(1)], read=[], numbers=[], grids=[1, 1, 1], site="lost:0"
        )
