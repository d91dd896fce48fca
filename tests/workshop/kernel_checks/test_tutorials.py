"""`asmtune diagnose` of kernels in the manner of tutorials: right ones, and ones with one fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from asmtune.base.errors import ProblemError
from asmtune.workshop.kernel_checks.reports import Diagnosis

FILE = Path(__file__).parent / "tutorial_kernels.py"

LAUNCHES = {
    "add": (
        {"n": 98432},
        "dict(x_ptr=(n,), y_ptr=(n,), output_ptr=(n,), n_elements=n)",
        "BLOCK_SIZE=64",
        "cdiv(n, BLOCK_SIZE)",
    ),
    "softmax_row": (
        {"rows": 1823, "n_cols": 100},
        "dict(output_ptr=(rows, n_cols), input_ptr=(rows, n_cols), input_row_stride=n_cols,"
        " output_row_stride=n_cols, n_cols=n_cols)",
        "BLOCK_SIZE=128",
        "rows",
    ),
    "softmax": (
        {"n_rows": 100, "n_cols": 100},
        "dict(output_ptr=(n_rows, n_cols), input_ptr=(n_rows, n_cols), input_row_stride=n_cols,"
        " output_row_stride=n_cols, n_rows=n_rows, n_cols=n_cols)",
        "BLOCK_SIZE=128 num_stages=2",
        "8",
    ),
    "matmul": (
        {"M": 512, "N": 512, "K": 512},
        "dict(a_ptr=(M, K), b_ptr=(K, N), c_ptr=('fp16', M, N), M=M, N=N, K=K, stride_am=K,"
        " stride_ak=1, stride_bk=N, stride_bn=1, stride_cm=N, stride_cn=1,"
        " ACTIVATION='leaky_relu')",
        "BLOCK_M=16 BLOCK_N=16 BLOCK_K=16 GROUP_M=2",
        "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",
    ),
    "dropout": (
        {"n": 1000},
        "dict(x_ptr=(n,), x_keep_ptr=('i32', n), output_ptr=(n,), n_elements=n, p=0.5)",
        "BLOCK_SIZE=64",
        "cdiv(n, BLOCK_SIZE)",
    ),
    "layer_norm": (
        {"M": 1151, "N": 1000},
        "dict(X=(M, N), Y=(M, N), W=(N,), B=(N,), Mean=('fp32', M), Rstd=('fp32', M), N=N,"
        " stride=N, eps=1e-5)",
        "BLOCK_SIZE=64",
        "M",
    ),
    "attention": (
        {"Z": 2, "H": 4, "N_CTX": 64, "D": 16},
        "dict(**dict.fromkeys(('Q', 'K', 'V', 'Out'), (Z, H, N_CTX, D)), sm_scale=0.25, Z=Z, H=H,"
        " N_CTX=N_CTX, HEAD_DIM=D, **{f'stride_{one}{axis}': stride for one, axes in"
        " dict(q='zhmk', k='zhnk', v='zhkn', o='zhmn').items()"
        " for axis, stride in zip(axes, (H * N_CTX * D, N_CTX * D, D, 1))})",
        "BLOCK_M=16 BLOCK_N=16",
        "cdiv(N_CTX, BLOCK_M), Z * H",
    ),
    "transpose": (
        {"rows": 300, "cols": 500},
        "dict(x_ptr=(rows, cols), y_ptr=(cols, rows), rows=rows, cols=cols, x_stride=cols,"
        " y_stride=rows)",
        "BLOCK=16",
        "cdiv(rows, BLOCK), cdiv(cols, BLOCK)",
    ),
    "cross_entropy": (
        {"rows": 128, "n_cols": 1000},
        "dict(logits_ptr=(rows, n_cols), labels_ptr=('i64', rows), loss_ptr=('fp32', rows),"
        " n_cols=n_cols, logits_stride=n_cols)",
        "BLOCK_SIZE=64",
        "rows",
    ),
    "convolution": (
        {"OH": 64, "OW": 128},
        "dict(x_ptr=(OH + 2, OW + 2), w_ptr=(3, 3), y_ptr=(OH, OW), H=OH + 2, W=OW + 2, OH=OH,"
        " OW=OW, stride_xh=OW + 2, stride_wh=3, stride_yh=OW, R=3, S=3)",
        "BLOCK=32",
        "OH, cdiv(OW, BLOCK)",
    ),
    "histogram": (
        {"n": 1000},
        "dict(x_ptr=('i32', n), out_ptr=('i32', 32), n=n)",
        "BLOCK=32",
        "cdiv(n, BLOCK)",
    ),
    "arcsine": ({"n": 1000}, "dict(x_ptr=(n,), y_ptr=(n,), n=n)", "BLOCK=32", "cdiv(n, BLOCK)"),
}
"""Sizes, arguments (a tuple is a tensor, of the module's dtype or of its own), axes and grid."""

HALVES = ("matmul", "layer_norm", "attention", "cross_entropy")
"""Kernels of fp16; the others are of fp32."""

MODULE = """

import inspect
from asmtune import Problem, Space
from asmtune.core.dtypes import torch_dtype

kernel = {name}
DTYPES, SHAPES, AXES = ({dtype!r}, "fp32"), ({shape!r},), dict({axes})


def space():
    return Space({{name: (value,) for name, value in AXES.items()}})


def problem(shape, dtype, device):
    def made(size):
        kind, *size = size if isinstance(size[0], str) else (dtype, *size)
        if kind[0] == "i":
            top = 32 if "{name}" == "histogram" else 2
            return torch.randint(0, top, size, device=device).to(torch_dtype(kind))
        return torch.randn(size, device=device).to(torch_dtype(kind))

    given = eval({arguments!r}, dict(shape))
    values = {{n: made(v) if isinstance(v, tuple) else v for n, v in given.items()}}
    if "out_ptr" in values:
        values["out_ptr"] = torch.zeros_like(values["out_ptr"])  # what is added to

    def grid(config):
        found = eval({grid!r}, {{"cdiv": triton.cdiv, **shape, **config}})
        return found if isinstance(found, tuple) else (found,)

    return Problem({name}, values, grid, shape, "{name}")


def reference(arguments):
    names = inspect.signature(reference_{name}).parameters
    values = {{n: arguments[n] for n in names}}
    floats = {{n: v.double() for n, v in values.items()
              if torch.is_tensor(v) and v.is_floating_point()}}
    return reference_{name}(**values | floats)
"""
"""What makes a kernel module of a kernel of the file."""

INFINITE = ', other=-float("inf")'
ZEROS = "tl.zeros([BLOCK_SIZE], dtype=tl.float"
SUM = "total += tl.load(X + cols, mask=cols < N, other=0.0)"

FAULTS = [
    ("add", "mask", [("offsets, mask=mask", "offsets"), ("x + y, mask=mask", "x + y")]),
    ("softmax_row", "mask", [(INFINITE, ", other=0.0")]),
    ("softmax_row", "", [("tl.sum(numerator, axis=0)", "tl.sum(x, axis=0)")]),
    ("softmax", "mask", [(INFINITE, ", other=0.0")]),
    ("softmax", "bounds", [("tl.range(first, n_rows, step", "tl.range(first, n_rows - 1, step")]),
    (
        "matmul",
        "mask",
        [
            (", mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0", ""),
            (", mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0", ""),
        ],
    ),
    ("matmul", "mask", [(", mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N)", "")]),
    ("matmul", "mask", [("range(tl.cdiv(K, BLOCK_K))", "range(0, K // BLOCK_K)")]),
    ("matmul", "", [("range(tl.cdiv(K, BLOCK_K))", "range(0, tl.cdiv(K, BLOCK_K) - 1)")]),
    ("matmul", "race", [("    tl.store(c_ptrs", "    c += tl.load(c_ptr)\n    tl.store(c_ptrs")]),
    ("matmul", "bounds", [("c_ptr + stride_cm *", "c_ptr + stride_am *")]),
    (
        "matmul",
        "accumulator",
        [
            ("(BLOCK_M, BLOCK_N), dtype=tl.float32", "(BLOCK_M, BLOCK_N), dtype=tl.float16"),
            ("tl.dot(a, b, accumulator)", "tl.dot(a, b, accumulator, out_dtype=tl.float16)"),
        ],
    ),
    ("dropout", "bounds", [("output_ptr + offsets", "output_ptr + offsets // 2")]),
    ("layer_norm", "mask", [("tl.where(cols < N, x - mean, 0.0)", "x - mean")]),
    (
        "layer_norm",
        "accumulator",
        [
            (
                "total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)",
                "total = tl.zeros([BLOCK_SIZE], dtype=tl.float16)",
            ),
            (f"{SUM}.to(tl.float32)", SUM),
        ],
    ),
    ("attention", "", [("acc * alpha[:, None] +", "acc +")]),
    ("attention", "", [("* stride_kz + off_h * stride_kh", "* stride_kz + off_h * stride_kn")]),
    ("transpose", "bounds", [("c[:, None] * y_stride", "c[:, None] * x_stride")]),
    ("cross_entropy", "mask", [(INFINITE, ", other=0.0")]),
    ("convolution", "", [("at[0] * stride_xh + at[1]", "at[0] * stride_yh + at[1]")]),
    ("histogram", "mask", [("other=0", "other=1"), ("1, mask=at < n", "1")]),
]
"""Kernels with replacements in their text, and the cause; "" where none of the causes explains."""

Diagnose = Callable[..., Diagnosis]


def diagnosed(
    found_in: Diagnose, name: str, folder: Path, changes: Sequence[tuple[str, str]] = ()
) -> Diagnosis:
    """Diagnose a kernel of the file, with changes of its text, as a module."""
    before, start, rest = FILE.read_text().partition(f"def {name}(")
    body, end, after = rest.partition(f"def reference_{name}(")
    for old, new in changes:
        assert old in body
        body = body.replace(old, new)
    shape, arguments, axes, grid = LAUNCHES[name]
    values = {"name": name, "dtype": "fp16" if name in HALVES else "fp32", "shape": shape}
    values |= {"arguments": arguments, "axes": axes.replace(" ", ", "), "grid": grid}
    module = folder / f"{name}_module.py"
    module.write_text(before + start + body + end + after + MODULE.format(**values))
    return found_in(str(module))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAUNCHES if name != "arcsine"])
def test_right_tutorials(name: str, tmp_path: Path, found_in: Diagnose) -> None:
    """Nothing is named about a right kernel."""
    found = diagnosed(found_in, name, tmp_path)
    assert not found.wrong, found.text()
    assert {one.outcome for one in found.findings} == {"fine"}, found.text()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cause", "replacements"), FAULTS)
def test_tutorials_with_one_fault(
    name: str,
    cause: str,
    replacements: Sequence[tuple[str, str]],
    tmp_path: Path,
    found_in: Diagnose,
) -> None:
    """A kernel with a planted fault is wrong, of the cause that the fault is, if it is any."""
    found = diagnosed(found_in, name, tmp_path, replacements)
    assert found.wrong, found.text()
    assert (found.cause.cause if found.cause else "") == cause, found.text()


@pytest.mark.slow
def test_what_is_not_interpreted_is_no_fault(tmp_path: Path, found_in: Diagnose) -> None:
    """A kernel that compiles, and uses what the interpreter lacks, is refused, not accused."""
    with pytest.raises(ProblemError, match="diagnose it on a GPU"):
        diagnosed(found_in, "arcsine", tmp_path)
