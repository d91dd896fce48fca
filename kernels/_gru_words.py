"""The words by which programs of the persistent GRU tell each other their states.

That kernel spreads the rows of a matrix over programs that need each other's results at every
step. What one has to tell goes as words of 64 bits, a value in the low half and an epoch in the
high one, each written and read at once: a state in fp32, or those of two sequences of 16 bits.
A reader loads the words that it waits for until all bear the epoch, so that value and signal
take one way through the L2, where a counter would take three (the values, then the counter,
then the values again). That is the low-latency protocol of NCCL.

With one word a state 128 programs of 4096 states read 4 MiB at each step, and again while they
wait; with one for two, half of that.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import num_threads


@triton.constexpr_function
def receive_code(count):
    """Write PTX that loads `count` words again and again until each bears the epoch."""
    places = range(count)
    lines = [
        *("{", ".reg .pred again;", ".reg .b32 off;"),
        *(f".reg .b32 epoch<{count}>;", f".reg .b64 word<{count}>;", "RECEIVE_${:uid}:"),
    ]
    lines += [f"ld.relaxed.gpu.global.b64 word{i}, [${count + i}];" for i in places]
    lines += [f"mov.b64 {{${i}, epoch{i}}}, word{i};" for i in places]
    lines += ["mov.b32 off, 0;"]
    for i in places:
        lines += [f"xor.b32 epoch{i}, epoch{i}, ${2 * count};", f"or.b32 off, off, epoch{i};"]
    lines += ["setp.ne.b32 again, off, 0;", "@again bra RECEIVE_${:uid};", "}"]
    return "\n".join(lines)


@triton.constexpr_function
def receive_registers(count):
    """Write the constraints of the code above: its values, addresses and epochs."""
    return ",".join(["=&r"] * count + ["l"] * count + ["r"] * count)


@triton.constexpr_function
def loads_at_once(count, threads):
    """Return how many words a thread waits for together; 16 took a tenth less of a step than 8."""
    return max(1, min(count // threads, 16))


@triton.constexpr_function
def in_pairs(lanes, element):
    """Return whether a word has two sequences' states."""
    return lanes > 1 and element.primitive_bitwidth == 16


@triton.constexpr_function
def words_of(lanes, element):
    """Return how many words the states of one unit take."""
    return lanes // 2 if in_pairs(lanes, element) else lanes


@triton.jit
def unpack(values, LANES: tl.constexpr, ELEMENT: tl.constexpr):
    """Return the states in words: of ELEMENT where two came in a word, in fp32 otherwise."""
    if in_pairs(LANES, ELEMENT):
        low = values.to(tl.int16).to(ELEMENT, bitcast=True)
        high = (values >> 16).to(tl.int16).to(ELEMENT, bitcast=True)
        both = tl.join(low, high)
        if len(values.shape) == 2:
            return tl.reshape(both, (values.shape[0], LANES))
        else:  # noqa: RET505 (Triton compiles what follows a return)
            return tl.reshape(both, (values.shape[0], values.shape[1], LANES))
    else:
        return values.to(tl.float32, bitcast=True)


@triton.jit
def received(
    words,
    epoch,
    known,
    COUNT: tl.constexpr,
    LANES: tl.constexpr,
    ELEMENT: tl.constexpr,
    FULL: tl.constexpr,
):
    """Wait until COUNT words bear the epoch; return all states, 0 for unknown ones unless FULL."""
    PACK: tl.constexpr = loads_at_once(COUNT, num_threads())
    states = unpack(tl.zeros(words.shape, tl.int32), LANES, ELEMENT)
    # The pass that removes layout conversions copies code into other layouts, effects or not:
    # six copies of these loads were seen. It does not look into a while. Words are unpacked in
    # there, too: a product takes an operand that was joined just before for one of 8 bits.
    left = 1
    while left > 0:
        values = tl.inline_asm_elementwise(
            receive_code(PACK), receive_registers(PACK), [words, epoch], tl.int32, False, PACK
        )
        states = unpack(values, LANES, ELEMENT)
        left -= 1
    # Every warp has its states before any writes words over those that it waited for.
    tl.debug_barrier()
    return states if FULL else tl.where(known, states, 0.0)


@triton.jit
def pack(state, ELEMENT: tl.constexpr):
    """Return states (units, lanes), in fp32, as what words carry: two lanes' of 16 bits, or one."""
    LANES: tl.constexpr = state.shape[len(state.shape) - 1]
    if len(state.shape) == 2 and in_pairs(LANES, ELEMENT):
        pairs = tl.reshape(state.to(ELEMENT), (state.shape[0], LANES // 2, 2))
        low, high = tl.split(pairs.to(tl.int16, bitcast=True))
        return (low.to(tl.int32) & 0xFFFF) | (high.to(tl.int32) << 16)
    else:  # noqa: RET505 (Triton compiles what follows a return)
        return state.to(tl.int32, bitcast=True)


@triton.jit
def send(words, state, epoch, ELEMENT: tl.constexpr):
    """Write states and the epoch, each word at once."""
    tl.inline_asm_elementwise(
        "{ .reg .b64 word; mov.b64 word, {$2, $3}; "
        "st.relaxed.gpu.global.b64 [$1], word; mov.b32 $0, 0; }",
        "=r,l,r,r",
        [words, pack(state, ELEMENT), epoch],
        tl.int32,
        False,
        1,
    )


@triton.jit
def begin(epoch_ptr):
    """Load the epoch that the last launch left."""
    epoch = tl.load(epoch_ptr).to(tl.int32)
    tl.debug_barrier()  # all warps know it before one can end the tile by another
    return epoch


@triton.jit
def leave(epoch_ptr, epoch):
    """Store the epoch. The next launch may find this one's words: its epochs begin after them."""
    if tl.program_id(0) == 0:
        tl.store(epoch_ptr, epoch.to(tl.int64))
