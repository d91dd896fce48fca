"""`patch()`: unchanged programs, autotuners that were there before, and what is put back."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import Autotuner
from triton.runtime import autotuner as triton_autotuner

import asmtune
from asmtune.base.errors import InputError
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.patching import redirect
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.runtime.patching.redirect import BucketWarning, PatchWarning, patch
from tests.dispatch.host_gpu import EFFORT, HostGpu, configs, copy

N = 1024


def never(*_: Any, **__: Any) -> Any:
    """A clock of Triton's that must not be asked."""
    pytest.fail("Triton timed it")


def first_of(kernel_call: Callable[[], Any], quantiles: Any) -> list[float]:
    """A clock to which all are alike."""
    kernel_call()
    return [1.0] * len(quantiles)


def vectors(n: int = N) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Arguments of `copy`."""
    return torch.arange(float(n)), torch.empty(n), n


def state_of_triton() -> list[Any]:
    """All that a patch changes in Triton."""
    places = (triton, triton.runtime, triton_autotuner)
    methods = [vars(Autotuner)[name] for name in ("run", "warmup")]
    return [*(vars(place)["autotune"] for place in places), *methods]


def test_triton_is_as_before(gpu: HostGpu) -> None:
    """On the way out, an error's as well, every name and method is what it was."""
    before = state_of_triton()
    with patch():
        assert all(now is not then for now, then in zip(state_of_triton(), before, strict=True))
    assert state_of_triton() == before
    with pytest.raises(KeyError), patch():
        raise KeyError
    assert state_of_triton() == before


def test_names_that_modules_hold(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """`from triton import autotune` of before, under any name, is asmtune's meanwhile."""
    original = triton_autotuner.autotune
    module = types.ModuleType("imported_before")
    module.tune = original  # type: ignore[attr-defined]
    module.other = print  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "imported_before", module)
    with patch():
        assert module.tune is triton.autotune is not original
        late = types.ModuleType("imported_meanwhile")
        late.tune = triton.autotune  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "imported_meanwhile", late)
        assert isinstance(module.tune(configs(), ["n"])(copy), AsmAutotuner)
    assert module.tune is late.tune is triton.autotune is original
    assert module.other is print


def test_modules_that_load_on_first_use_sleep_on(
    gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for names wakes no module that loads itself when one is asked for."""

    class Sleeping(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            pytest.fail(f"woken by {name}")

    monkeypatch.setitem(sys.modules, "sleeping", Sleeping("sleeping"))
    monkeypatch.setitem(sys.modules, "no_module", object())  # type: ignore[arg-type]
    with patch():
        pass


def test_autotuners_of_before(gpu: HostGpu) -> None:
    """One made before is tuned by asmtune meanwhile, shows it, and is Triton's again afterwards."""
    listed = configs()
    kernel = triton.autotune(listed, ["n"])(copy)
    kernel.do_bench = never
    earlier = kernel.cache
    attributes = set(vars(kernel))
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        for _ in range(3):
            x, out, n = vectors()
            kernel[(8,)](x, out, n)
            assert torch.equal(out, x)
        assert kernel.best_config is listed[0]
        assert dict(kernel.cache) == {(N, "torch.float32", "torch.float32"): listed[0]}
        assert set(kernel.configs_timings) == set(listed)
        assert kernel.bench_time > 0
    assert gpu.tuned == 1
    assert type(kernel) is Autotuner
    assert kernel.cache is earlier
    assert earlier == {}
    results = {"best_config", "configs_timings", "bench_time", "nargs"}
    assert set(vars(kernel)) <= attributes | results
    kernel.do_bench = first_of
    kernel[(8,)](*vectors())
    assert earlier.keys() == {(N, "torch.float32", "torch.float32")}
    assert gpu.tuned == 1


class Plain(Autotuner):  # type: ignore[misc]
    """Runs as Triton's does."""


class Reading(Autotuner):  # type: ignore[misc]
    """Puts configs into the cache before Triton looks, as a library with files of configs."""

    files: dict[int, Any] = {}  # noqa: RUF012 - one for the test

    def run(self, *args: Any, **keywords: Any) -> Any:
        """Ask the files first."""
        key = (args[2], *(str(value.dtype) for value in args[:2]))
        if key not in self.cache and args[2] in self.files:
            self.cache[key] = self.files[args[2]]
        return super().run(*args, **keywords)


class Measuring(Autotuner):  # type: ignore[misc]
    """Times in a way of its own."""

    def _bench(self, *_: Any, config: Any, **__: Any) -> list[float]:
        return [-float(config.kwargs["BLOCK"])] * 3


class Launching(Autotuner):  # type: ignore[misc]
    """Runs in a way of its own."""

    def run(self, *_: Any, **__: Any) -> str:
        """Launch nothing."""
        return "mine"


def of_class(kind: type, listed: list[Any] | None = None) -> Any:
    """`copy` under a subclass of Triton's."""
    return kind(copy, copy.arg_names, listed or configs(), ["n"], None, None, do_bench=first_of)


def test_subclasses(gpu: HostGpu) -> None:
    """Those that only add are tuned by asmtune; those with parts of their own keep them."""
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        plain, measuring = of_class(Plain), of_class(Measuring)
        plain[(8,)](*vectors())
        assert gpu.tuned == 1
        measuring[(8,)](*vectors())
        assert measuring.best_config.kwargs["BLOCK"] == 128
        assert of_class(Launching)[(8,)](*vectors()) == "mine"
        replaced = of_class(Plain)
        replaced._bench = lambda *_, config, **__: [-float(config.kwargs["BLOCK"])] * 3
        replaced[(8,)](*vectors())
        assert replaced.best_config.kwargs["BLOCK"] == 128
        assert gpu.tuned == 1


def test_what_a_subclass_puts_into_the_cache_is_launched(
    gpu: HostGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configs of a library's own files are launched, and the other keys are tuned by asmtune."""
    mine = triton.Config({"BLOCK": 512})
    monkeypatch.setattr(Reading, "files", {64: mine})
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        kernel = of_class(Reading)
        for n, block, tuned in ((64, 512, 0), (N, 32, 1), (64, 512, 1), (N, 32, 1)):
            kernel[(8,)](*vectors(n))
            assert gpu.launched[-1]["BLOCK"] == kernel.best_config.kwargs["BLOCK"] == block
            assert gpu.tuned == tuned
        assert set(kernel.cache) == {
            (64, "torch.float32", "torch.float32"),
            (N, "torch.float32", "torch.float32"),
        }


def test_what_a_program_puts_into_the_cache_is_launched(gpu: HostGpu) -> None:
    """A config that the program itself puts into `cache`, before or meanwhile, is launched."""
    kernel = triton.autotune(configs(), ["n"])(copy)
    dtypes = ("torch.float32", "torch.float32")
    kernel.cache[64, *dtypes] = triton.Config({"BLOCK": 512})
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        kernel[(8,)](*vectors(64))
        kernel.cache[32, *dtypes] = triton.Config({"BLOCK": 256})
        kernel[(8,)](*vectors(32))
        kernel[(8,)](*vectors())
        kernel.configs = configs(64, 128)  # what was tuned goes, what the program put there stays
        kernel[(8,)](*vectors(64))
        kernel[(8,)](*vectors())
    assert [launch["BLOCK"] for launch in gpu.launched] == [512, 256, 32, 512, 64]
    assert gpu.tuned == 2


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True])
def test_configs_that_a_program_replaces(gpu: HostGpu, early: bool) -> None:
    """A program that pins a config by `kernel.configs = [...]` gets it launched, untuned."""
    kernel = triton.autotune(configs(), ["n"])(copy)
    pinned = triton.Config({"BLOCK": 256})
    with patch(skip_tuning_below_us=None, effort=EFFORT):
        if not early:
            kernel = triton.autotune(configs(), ["n"])(copy)
        kernel[(8,)](*vectors())
        assert gpu.tuned == 1
        kernel.configs = configs(64, 512)
        kernel[(8,)](*vectors())
        assert gpu.launched[-1]["BLOCK"] == 64
        assert gpu.tuned == 2
        kernel.configs = [pinned]
        kernel[(8,)](*vectors())
        assert gpu.launched[-1]["BLOCK"] == 256
        assert kernel.best_config is pinned
        assert kernel.configs == [pinned]
        assert gpu.tuned == 2


def options_of(instance: Any) -> dict[str, Any]:
    """Give the options that a converted autotuner ended up with."""
    made = convert(instance, {"skip_tuning_below_us": None})
    choices = dict(made.options.choices)
    return {"key": made.keys, "prune": made.options.prune, "strict": made.options.strict, **choices}


def test_all_options_are_taken_over(gpu: HostGpu) -> None:
    """Keys, names, functions and older keywords mean in asmtune what they meant in Triton."""

    def hook(*_: Any, **__: Any) -> None:
        pass

    made = triton.autotune(
        configs(),
        ["n"],
        prune_configs_by={"perf_model": max, "top_k": 3, "early_config_prune": min},
        reset_to_zero=["out_ptr"],
        restore_value=["x_ptr"],
        pre_hook=hook,
        post_hook=hook,
        do_bench=first_of,
        cache_results=True,
    )(copy)
    found = options_of(made)
    assert found["key"] == ["n"]
    assert found["strict"] is False
    prune = found["prune"]
    assert (prune.perf_model, prune.top_k, prune.early_config_prune) == (max, 3, min)
    assert (*found["reset_to_zero"], *found["restore_value"]) == ("out_ptr", "x_ptr")
    assert (found["pre_hook"], found["post_hook"]) == (hook, hook)
    assert (found["do_bench"], found["cache_results"]) == (first_of, True)


@pytest.mark.skipif(
    int(triton.__version__.split(".")[1]) > 8, reason="this Triton refuses unknown keys"
)
def test_keys_that_are_no_parameters(gpu: HostGpu) -> None:
    """A key that Triton drops without a word is dropped with a word, once for a kernel."""
    redirect._warn_of_key.cache_clear()
    assert options_of(triton.autotune(configs(), ["n", "absent"])(copy))["key"] == ["n"]
    before = triton.autotune(configs(), ["n", "scal"])(copy)
    with (
        patch(effort=EFFORT, skip_tuning_below_us=None),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for kernel in (triton.autotune(configs(), ["n", "scal"])(copy), before, before):
            x, out, n = vectors()
            kernel[lambda values: (triton.cdiv(values["n"], values["BLOCK"]),)](x, out, n)
            assert out.equal(x)
    (warning,) = caught
    assert (warning.category, warning.filename) == (PatchWarning, __file__)
    assert "copy: key 'scal' is no parameter" in str(warning.message)
    assert str(warning.message).endswith("did you mean scale?")


@triton.jit
def shaped(x_ptr, out_ptr, n, SHAPE: tl.constexpr, BLOCK: tl.constexpr = 32):
    """Copy; `SHAPE` is for show."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("early", [False, True])
def test_what_asmtune_refuses_stays_with_triton(
    gpu: HostGpu, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config with a value that asmtune cannot store costs one warning, and Triton tunes it."""
    odd = [triton.Config({"SHAPE": {8: 8}})]
    made = triton.autotune(odd, ["n"])(shaped) if early else None
    launched: list[Any] = []
    monkeypatch.setattr(shaped, "run", lambda *_, **named: launched.append(named))
    with patch(effort=EFFORT), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = made or triton.autotune(odd, ["n"])(shaped)
        assert type(kernel) is Autotuner
        assert len(caught) == (not early)
        for _ in range(2):
            kernel[(8,)](*vectors())
    (warning,) = caught
    assert warning.category is PatchWarning
    assert "shaped is left to triton.autotune: " in str(warning.message)
    assert launched[1]["SHAPE"] == {8: 8}
    assert gpu.tuned == 0


def test_the_innermost_patch_counts(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested patches have their own options and results, and the outer one's come back."""
    kernel = triton.autotune(configs(), ["n"])(copy)
    earlier, runs = kernel.cache, []
    with patch(skip_tuning_below_us=None, effort=EFFORT, seed=1):
        kernel[(8,)](*vectors())
        outer = kernel.cache
        with patch(on_miss="raise", skip_tuning_below_us=None):
            kernel[(8,)](*vectors())  # the store knows it
            with pytest.raises(asmtune.base.errors.MissError):
                kernel[(8,)](*vectors(64))
            runs.append(kernel.cache)
        assert kernel.cache is outer
        kernel[(8,)](*vectors(64))
        assert gpu.tuned == 2
        assert len(outer) == 2
    assert runs[0] is not outer
    assert kernel.cache is earlier


@pytest.mark.parametrize("early", [False, True])
def test_buckets_of_keys(gpu: HostGpu, early: bool) -> None:
    """Launches whose arguments share a bucket share a config, and all of Triton's keys show it."""
    kernel = triton.autotune(configs(), ["n"])(copy)
    with patch(skip_tuning_below_us=None, effort=EFFORT, buckets=["copy:multiple(1000, n)"]):
        if not early:
            kernel = triton.autotune(configs(), ["n"])(copy)
        for n in (1024, 1500, 1024, 2000):
            x, out, _ = vectors(n)
            kernel[(63,)](x, out, n)
            assert torch.equal(out, x)
        assert gpu.tuned == 1
        if early:
            assert {key[0] for key in kernel.cache} == {1024, 1500, 2000}
        kernel[(63,)](*vectors(2001))
        assert gpu.tuned == 2


def test_buckets_that_change_no_key(gpu: HostGpu) -> None:
    """A rule that changed no key is warned of once, when the patch ends."""
    text = r"patch: bucket pow2\(m\) changed no key: those that it names hold n"
    with pytest.warns(BucketWarning, match=text) as warned, patch(buckets=["pow2(m)", "pow2(n)"]):
        triton.autotune(configs(), ["n"])(copy)
    assert len(warned) == 1
    assert warned[0].filename == __file__


BAD_OPTIONS: dict[str, Any] = {
    "efort": "quick",
    "key": ["n"],
    "effort": "hard",
    "on_miss": "cry",
    "skip_tuning_below_us": -0.5,
    "buckets": ["pow2"],
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options(name: str) -> None:
    """Options that do not fit are refused on the way in, and nothing is changed."""
    before = state_of_triton()
    with pytest.raises(InputError, match=f"{name}|bucket "), patch(**{name: BAD_OPTIONS[name]}):
        pass
    assert state_of_triton() == before
