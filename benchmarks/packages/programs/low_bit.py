"""A linear layer with weights of 4 bits, by GemLite: one token, a few, and a prompt."""

import torch
from gemlite.helper import A16W4_HQQ_INT
from stopwatch import Call, Operation, Outputs, Place, main

GROUP = 128


def _linear(tokens: int) -> Operation:
    def operation(place: Place) -> Call:
        width = place.size(4096, 256)
        codes = torch.randint(16, (width, width), device=place.device, dtype=torch.uint8)
        shape = (width * width // GROUP, 1)
        scales = torch.rand(shape, device=place.device, dtype=torch.float16) * 0.01
        zeros = torch.full(shape, 7.0, device=place.device, dtype=torch.float16)
        layer = A16W4_HQQ_INT(device=place.device, dtype=torch.float16).from_weights(
            codes, scales, zeros
        )
        rows = place.size(tokens, min(tokens, 64))
        x = torch.randn(rows, width, device=place.device, dtype=torch.float16)

        def call() -> Outputs:
            return {"y": layer(x)}

        return call

    return operation


if __name__ == "__main__":
    main({"token": _linear(1), "batch": _linear(16), "prompt": _linear(2048)})
