"""Launches of tutorial kernels with literal strides, as a user would write them."""
STRIDED = {"rows": 1}
LAUNCHES = {
    "add": ("x_ptr=fp32[n] y_ptr=fp32[n] output_ptr=fp32[n] n=98432 n_elements=98432", "BLOCK_SIZE=64", "cdiv(n_elements, BLOCK_SIZE)"),
    "softmax_row": ("output_ptr=fp32[R,C] input_ptr=fp32[R,C] R=1823 C=100 input_row_stride=100 output_row_stride=100 n_cols=100", "BLOCK_SIZE=128", "R"),
    "softmax": ("output_ptr=fp32[n_rows,n_cols] input_ptr=fp32[n_rows,n_cols] n_rows=1823 n_cols=100 input_row_stride=100 output_row_stride=100", "BLOCK_SIZE=128 num_stages=2", "8"),
    "matmul": ("a_ptr=fp16[M,K] b_ptr=fp16[K,N] c_ptr=fp16[M,N] M=512 N=512 K=512 stride_am=512 stride_ak=1 stride_bk=512 stride_bn=1 stride_cm=512 stride_cn=1 ACTIVATION=leaky_relu", "BLOCK_M=16 BLOCK_N=16 BLOCK_K=16 GROUP_M=2", "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"),
    "persistent_matmul": ("a_ptr=fp16[M,K] b_ptr=fp16[N,K] c_ptr=fp32[M,N] M=512 N=256 K=128 stride_am=128 stride_bn=128 stride_cm=256", "BLOCK=16 NUM_SMS=4", "NUM_SMS"),
    "dropout": ("x_ptr=fp32[n] x_keep_ptr=i32[n] output_ptr=fp32[n] n=1000 n_elements=1000 p=0.5", "BLOCK_SIZE=64", "cdiv(n_elements, BLOCK_SIZE)"),
    "layer_norm": ("X=fp16[M,N] Y=fp16[M,N] W=fp16[N] B=fp16[N] Mean=fp32[M] Rstd=fp32[M] M=1151 N=1000 stride=1000 eps=1e-5", "BLOCK_SIZE=64", "M"),
    "attention": ("Q=fp16[Z,H,N_CTX,HEAD_DIM] K=fp16[Z,H,N_CTX,HEAD_DIM] V=fp16[Z,H,N_CTX,HEAD_DIM] Out=fp16[Z,H,N_CTX,HEAD_DIM] sm_scale=0.25 Z=2 H=4 N_CTX=256 HEAD_DIM=16 " + " ".join(f"stride_{t}{a}={s}" for t, axes in {"q": "zhmk", "k": "zhnk", "v": "zhkn", "o": "zhmn"}.items() for a, s in zip(axes, (16384, 4096, 16, 1))), "BLOCK_M=16 BLOCK_N=16", "cdiv(N_CTX, BLOCK_M), Z * H"),
    "transpose": ("x_ptr=fp32[rows,cols] y_ptr=fp32[cols,rows] rows=300 cols=500 x_stride=500 y_stride=300", "BLOCK=16", "cdiv(rows, BLOCK), cdiv(cols, BLOCK)"),
    "column_sums": ("x_ptr=fp16[M,N] sums_ptr=fp32[N] M=400 N=600 stride_m=600", "BLOCK_M=16 BLOCK_N=16", "cdiv(N, BLOCK_N)"),
    "cross_entropy": ("logits_ptr=fp16[rows,n_cols] labels_ptr=i64[rows] loss_ptr=fp32[rows] rows=128 n_cols=1000 logits_stride=1000", "BLOCK_SIZE=64", "rows"),
    "convolution": ("x_ptr=fp32[OH+2,OW+2] w_ptr=fp32[3,3] y_ptr=fp32[OH,OW] H=66 W=130 OH=64 OW=128 stride_xh=130 stride_wh=3 stride_yh=128 R=3 S=3", "BLOCK=32", "OH, cdiv(OW, BLOCK)"),
    "rotary": ("x_ptr=fp32[B,seq_len,2*half] cos_ptr=fp32[seq_len,half] sin_ptr=fp32[seq_len,half] y_ptr=fp32[B,seq_len,2*half] B=4 seq_len=64 half=24 x_batch_stride=3072 x_row_stride=48 cos_row_stride=24", "BLOCK=32", "B * seq_len"),
    "row_sums": ("x_ptr=fp32[rows,n_cols] partial_ptr=fp32[rows,cdiv(n_cols,32)] rows=64 n_cols=1000 x_stride=1000 partial_stride=32", "BLOCK=32", "rows, cdiv(n_cols, BLOCK)"),
}
