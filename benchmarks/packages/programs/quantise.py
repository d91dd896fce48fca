"""Casts to FP8 of TorchAO, whose scales are found by atomic maxima and minima."""

import torch
from stopwatch import Call, Outputs, Place, main
from torchao.float8.float8_training_tensor import LinearMMConfig
from torchao.prototype.float8nocompile.kernels.fp8_dynamic_tensorwise import hp_to_fp8_row_major
from torchao.prototype.moe_training.kernels import float8_rowwise


def tensorwise(place: Place) -> Call:
    """Cast 4096 x 8192 numbers with one scale, that of the largest of them."""
    x = place.normal(place.size(4096, 16), place.size(8192, 64))

    def call() -> Outputs:
        cast = hp_to_fp8_row_major(x, torch.float8_e4m3fn, LinearMMConfig())
        return {"data": cast._data.view(torch.uint8), "scale": cast._scale}

    return call


def experts(place: Place) -> Call:
    """Cast and transpose the weights of 16 experts of 2048 x 5120 with a scale a row."""
    weights = place.normal(16, place.size(2048, 32), place.size(5120, 64))

    def call() -> Outputs:
        data, scales = float8_rowwise.triton_fp8_rowwise_3d_transpose_rhs(weights)
        return {"data": data.view(torch.uint8), "scales": scales}

    return call


if __name__ == "__main__":
    main({"tensorwise": tensorwise, "experts": experts})
