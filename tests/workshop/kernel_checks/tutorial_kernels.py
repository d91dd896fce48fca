"""Kernels in the manner of Triton's tutorials, whose strides and sizes are arguments.

Each is right; tests replace parts of the text. `reference_NAME` computes what `NAME` should.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


def reference_add(x_ptr, y_ptr):
    return x_ptr + y_ptr


@triton.jit
def softmax_row(output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols,
                BLOCK_SIZE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(input_ptr + row * input_row_stride + cols, mask=cols < n_cols, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(output_ptr + row * output_row_stride + cols, y, mask=cols < n_cols)


def reference_softmax_row(input_ptr):
    return input_ptr.softmax(1)


@triton.jit
def softmax(output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols,
            BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr):  # fmt: skip
    first, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(first, n_rows, step, num_stages=num_stages):
        cols = tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(input_ptr + row * input_row_stride + cols, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        y = numerator / tl.sum(numerator, axis=0)
        tl.store(output_ptr + row * output_row_stride + cols, y, mask=mask)


def reference_softmax(input_ptr):
    return input_ptr.softmax(1)


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
           stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, ACTIVATION: tl.constexpr):  # fmt: skip
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first_m = pid // in_group * GROUP_M
    height = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + pid % in_group % height
    pid_n = pid % in_group // height
    tl.assume(stride_am > 0)
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(tl.float16)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def reference_matmul(a_ptr, b_ptr):
    return torch.nn.functional.leaky_relu(a_ptr @ b_ptr)


@triton.jit
def dropout(x_ptr, x_keep_ptr, output_ptr, n_elements, p, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.load(x_keep_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, tl.where(keep != 0, x / (1 - p), 0.0), mask=mask)


def reference_dropout(x_ptr, x_keep_ptr, p):
    return torch.where(x_keep_ptr.bool(), x_ptr / (1 - p), 0.0)


@triton.jit
def layer_norm(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        total += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w, b = tl.load(W + cols, mask=mask), tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


def reference_layer_norm(X, W, B, eps):
    mean = X.mean(1)
    rstd = 1 / (X.var(1, unbiased=False) + eps).sqrt()
    return (X - mean[:, None]) * rstd[:, None] * W + B, mean, rstd


@triton.jit
def attention(Q, K, V, sm_scale, Out, stride_qz, stride_qh, stride_qm, stride_qk,
              stride_kz, stride_kh, stride_kn, stride_kk, stride_vz, stride_vh, stride_vk,
              stride_vn, stride_oz, stride_oh, stride_om, stride_on, Z, H, N_CTX,
              HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    start_m, off_hz = tl.program_id(0), tl.program_id(1)
    off_z, off_h = off_hz // H, off_hz % H
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    q_ptrs = Q + off_z * stride_qz + off_h * stride_qh
    q_ptrs += offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qk
    q = tl.load(q_ptrs, mask=offs_m[:, None] < N_CTX, other=0.0)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for start_n in range(0, tl.minimum((start_m + 1) * BLOCK_M, N_CTX), BLOCK_N):
        offs_n = start_n + tl.arange(0, BLOCK_N)
        k_ptrs = K + off_z * stride_kz + off_h * stride_kh
        k_ptrs += offs_n[None, :] * stride_kn + offs_d[:, None] * stride_kk
        k = tl.load(k_ptrs, mask=offs_n[None, :] < N_CTX, other=0.0)
        qk = tl.dot(q, k) * sm_scale
        seen = (offs_m[:, None] >= offs_n[None, :]) & (offs_n[None, :] < N_CTX)
        qk = tl.where(seen, qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_ij[:, None])
        alpha = tl.exp(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        v_ptrs = V + off_z * stride_vz + off_h * stride_vh
        v_ptrs += offs_n[:, None] * stride_vk + offs_d[None, :] * stride_vn
        v = tl.load(v_ptrs, mask=offs_n[:, None] < N_CTX, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_ij
    o_ptrs = Out + off_z * stride_oz + off_h * stride_oh
    o_ptrs += offs_m[:, None] * stride_om + offs_d[None, :] * stride_on
    tl.store(o_ptrs, acc / l_i[:, None], mask=offs_m[:, None] < N_CTX)


def reference_attention(Q, K, V, sm_scale):
    scores = Q @ K.mT * sm_scale
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ V


@triton.jit
def transpose(x_ptr, y_ptr, rows, cols, x_stride, y_stride, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r[:, None] * x_stride + c[None, :],
                mask=(r[:, None] < rows) & (c[None, :] < cols))  # fmt: skip
    tl.store(y_ptr + c[:, None] * y_stride + r[None, :], tl.trans(x),
             mask=(c[:, None] < cols) & (r[None, :] < rows))  # fmt: skip


def reference_transpose(x_ptr):
    return x_ptr.T


@triton.jit
def cross_entropy(logits_ptr, labels_ptr, loss_ptr, logits_stride, n_cols,
                  BLOCK_SIZE: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    logits_ptr += row * logits_stride
    largest, total = -float("inf"), 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(logits_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)
        largest = larger
    label = tl.load(labels_ptr + row)
    chosen = tl.load(logits_ptr + label).to(tl.float32)
    tl.store(loss_ptr + row, largest + tl.log(total) - chosen)


def reference_cross_entropy(logits_ptr, labels_ptr):
    return torch.nn.functional.cross_entropy(logits_ptr, labels_ptr.long(), reduction="none")


@triton.jit
def convolution(x_ptr, w_ptr, y_ptr, H, W, OH, OW, stride_xh, stride_wh, stride_yh,
                R: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for r in range(R):
        for s in range(S):
            at = row * 1 + r, cols + s
            inside = (at[0] < H) & (at[1] < W)
            x = tl.load(x_ptr + at[0] * stride_xh + at[1], mask=inside, other=0.0)
            total += x * tl.load(w_ptr + r * stride_wh + s)
    tl.store(y_ptr + row * stride_yh + cols, total, mask=(row < OH) & (cols < OW))


def reference_convolution(x_ptr, w_ptr):
    return torch.nn.functional.conv2d(x_ptr[None, None], w_ptr[None, None])[0, 0]


@triton.jit
def histogram(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(out_ptr + x, 1, mask=at < n)


def reference_histogram(x_ptr):
    return torch.bincount(x_ptr.long(), minlength=32)


@triton.jit
def arcsine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, libdevice.asin(tl.load(x_ptr + at, mask=at < n)), mask=at < n)


def reference_arcsine(x_ptr):
    return torch.asin(x_ptr)
