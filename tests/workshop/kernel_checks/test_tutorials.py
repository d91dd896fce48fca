"""`asmtune diagnose` of kernels in the manner of tutorials: right ones, and ones with one fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from asmtune.base.errors import ProblemError
from asmtune.core.inputs.shapes import parse_axis
from asmtune.workshop.kernel_checks.reports import Diagnosis

FILE = Path(__file__).parent / "tutorial_kernels.py"

_HEADS = "[Z,H,N_CTX,HEAD_DIM]"
_STRIDES = " ".join(
    f"stride_{tensor}{axis}={stride}"
    for tensor, axes in {"q": "zhmk", "k": "zhnk", "v": "zhkn", "o": "zhmn"}.items()
    for axis, stride in zip(axes, (4096, 1024, 16, 1), strict=True)
)

LAUNCHES = {
    "add": (
        "x_ptr=fp32[n] y_ptr=fp32[n] output_ptr=fp32[n] n=98432 n_elements=98432",
        "BLOCK_SIZE=64",
        "cdiv(n_elements, BLOCK_SIZE)",
    ),
    "softmax_row": (
        "output_ptr=fp32[1823,100] input_ptr=fp32[1823,100] input_row_stride=100 "
        "output_row_stride=100 n_cols=100",
        "BLOCK_SIZE=128",
        "1823",
    ),
    "softmax": (
        "output_ptr=fp32[n_rows,n_cols] input_ptr=fp32[n_rows,n_cols] n_rows=100 n_cols=100 "
        "input_row_stride=100 output_row_stride=100",
        "BLOCK_SIZE=128 num_stages=2",
        "8",
    ),
    "matmul": (
        "a_ptr=fp16[M,K] b_ptr=fp16[K,N] c_ptr=fp16[M,N] M=512 N=512 K=512 stride_am=512 "
        "stride_ak=1 stride_bk=512 stride_bn=1 stride_cm=512 stride_cn=1 ACTIVATION=leaky_relu",
        "BLOCK_M=16 BLOCK_N=16 BLOCK_K=16 GROUP_M=2",
        "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)",
    ),
    "persistent_matmul": (
        "a_ptr=fp16[M,K] b_ptr=fp16[N,K] c_ptr=fp32[M,N] M=512 N=256 K=128 stride_am=128 "
        "stride_bn=128 stride_cm=256",
        "BLOCK=16 NUM_SMS=4",
        "NUM_SMS",
    ),
    "dropout": (
        "x_ptr=fp32[1000] x_keep_ptr=i32[1000] output_ptr=fp32[1000] n_elements=1000 p=0.5",
        "BLOCK_SIZE=64",
        "cdiv(1000, 64)",
    ),
    "layer_norm": (
        "X=fp16[M,N] Y=fp16[M,N] W=fp16[N] B=fp16[N] Mean=fp32[M] Rstd=fp32[M] M=1151 N=1000 "
        "stride=1000 eps=1e-5",
        "BLOCK_SIZE=64",
        "M",
    ),
    "attention": (
        f"Q=fp16{_HEADS} K=fp16{_HEADS} V=fp16{_HEADS} Out=fp16{_HEADS} sm_scale=0.25 Z=2 H=4 "
        f"N_CTX=64 HEAD_DIM=16 {_STRIDES}",
        "BLOCK_M=16 BLOCK_N=16",
        "cdiv(N_CTX, BLOCK_M), Z * H",
    ),
    "transpose": (
        "x_ptr=fp32[rows,cols] y_ptr=fp32[cols,rows] rows=300 cols=500 x_stride=500 y_stride=300",
        "BLOCK=16",
        "cdiv(rows, BLOCK), cdiv(cols, BLOCK)",
    ),
    "column_sums": (
        "x_ptr=fp16[M,N] sums_ptr=fp32[N] M=400 N=600 stride_m=600",
        "BLOCK_M=16 BLOCK_N=16",
        "cdiv(N, BLOCK_N)",
    ),
    "cross_entropy": (
        "logits_ptr=fp16[rows,n_cols] labels_ptr=i64[rows] loss_ptr=fp32[rows] rows=128 "
        "n_cols=1000 logits_stride=1000",
        "BLOCK_SIZE=64",
        "rows",
    ),
    "convolution": (
        "x_ptr=fp32[OH+2,OW+2] w_ptr=fp32[3,3] y_ptr=fp32[OH,OW] H=66 W=130 OH=64 OW=128 "
        "stride_xh=130 stride_wh=3 stride_yh=128 R=3 S=3",
        "BLOCK=32",
        "OH, cdiv(OW, BLOCK)",
    ),
    "rotary": (
        "x_ptr=fp32[B,seq_len,2*half] cos_ptr=fp32[seq_len,half] sin_ptr=fp32[seq_len,half] "
        "y_ptr=fp32[B,seq_len,2*half] B=4 seq_len=64 half=24 x_batch_stride=3072 x_row_stride=48 "
        "cos_row_stride=24",
        "BLOCK=32",
        "B * seq_len",
    ),
    "row_sums": (
        "x_ptr=fp32[rows,n_cols] partial_ptr=fp32[rows,cdiv(n_cols,32)] rows=64 n_cols=1000 "
        "x_stride=1000 partial_stride=32",
        "BLOCK=32",
        "rows, cdiv(n_cols, BLOCK)",
    ),
    # All sizes and strides are equal, and written as numbers.
    "tiles": (
        "x_ptr=fp32[512,512] y_ptr=fp32[512,512] M=512 N=512 sx=512 sy=512",
        "BLOCK=16",
        "cdiv(512, 16), cdiv(512, 16)",
    ),
    # The size is a product of numbers that follow nothing.
    "flat_mn": ("x_ptr=fp32[n] y_ptr=fp32[n] M=30 N=20 n=600", "BLOCK=64", "cdiv(n, BLOCK)"),
    # Rows of x are longer than what is read of them.
    "padded": (
        "x_ptr=fp32[rows,1024] y_ptr=fp32[rows,1000] rows=64 cols=1000 x_stride=1024 y_stride=1000",
        "BLOCK=64",
        "rows",
    ),
    # Strides of permuted axes, two of which are equal.
    "nhwc": (
        "x_ptr=fp32[2,H,W,16] y_ptr=fp32[2,H,16] H=24 W=24 C=16 sn=9216 sh=384 sw=16 sc=1",
        "BLOCK=16",
        "2 * H",
    ),
    # A number that is no size, and is as large.
    "windowed": ("x_ptr=fp32[N] y_ptr=fp32[N] N=64 window=64", "BLOCK=32", "cdiv(N, BLOCK)"),
    # What is added to is zero before.
    "histogram": ("x_ptr=i32[n] out_ptr=i32[32] n=1000", "BLOCK=32", "cdiv(n, BLOCK)"),
    "arcsine": ("x_ptr=fp32[n] y_ptr=fp32[n] n=1000", "BLOCK=32", "cdiv(n, BLOCK)"),
}
"""Arguments, axes and grid, by the kernel's name."""

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
    (
        "persistent_matmul",
        "",
        [("n[None, :] * stride_bn + k[:, None]", "n[None, :] + k[:, None] * stride_bn")],
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
    ("column_sums", "", [("tl.sum(x.to(tl.float32), axis=0)", "tl.sum(x.to(tl.float32), axis=1)")]),
    ("cross_entropy", "mask", [(INFINITE, ", other=0.0")]),
    ("convolution", "", [("at[0] * stride_xh + at[1]", "at[0] * stride_yh + at[1]")]),
    ("rotary", "", [("x1 * cos - x2 * sin", "x1 * cos + x2 * sin")]),
    ("row_sums", "bounds", [("row * partial_stride + block", "row * partial_stride")]),
    ("tiles", "mask", [("m * sx + n, mask=i), mask=i", "m * sx + n)")]),
    ("padded", "mask", [(", mask=c < cols", "")]),
    ("histogram", "mask", [("other=0", "other=1"), ("1, mask=at < n", "1")]),
    # Copies of marked memory over other marked memory.
    ("windowed", "mask", [(", mask=n < N", ""), ("n < window", "n >= 0")]),
]
"""Kernels with replacements in their text, and the cause; "" where none of the causes explains."""

Diagnose = Callable[..., Diagnosis]


def diagnosed(found_in: Diagnose, name: str, file: Path = FILE) -> Diagnosis:
    """Diagnose a kernel of a file as a plain function."""
    arguments, axes, grid = LAUNCHES[name]
    return found_in(
        f"{file}:{name}",
        reference=f"{file}:reference_{name}",
        arguments=tuple(arguments.split()),
        axes=dict(map(parse_axis, axes.split())),
        grid=grid,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAUNCHES if name != "arcsine"])
def test_right_tutorials(name: str, found_in: Diagnose) -> None:
    """Nothing is named about a right kernel, whatever its numbers are called or equal."""
    found = diagnosed(found_in, name)
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
    before, start, rest = FILE.read_text().partition(f"def {name}(")
    body, end, after = rest.partition(f"def reference_{name}(")
    for old, new in replacements:
        assert old in body
        body = body.replace(old, new)
    file = tmp_path / "kernels.py"
    file.write_text(before + start + body + end + after)
    found = diagnosed(found_in, name, file)
    assert found.wrong, found.text()
    assert (found.cause.cause if found.cause else "") == cause, found.text()


@pytest.mark.slow
def test_what_is_not_interpreted_is_no_fault(found_in: Diagnose) -> None:
    """A kernel that compiles, and uses what the interpreter lacks, is refused, not accused."""
    with pytest.raises(ProblemError, match="diagnose it on a GPU"):
        diagnosed(found_in, "arcsine")
