"""Say why a config is slow, in the classes people know, each with its numbers.

    artifact --addresses--> access patterns, bank conflicts --findings--> text, advice, layouts

- `addresses`: where each lane of a warp reads and writes, computed on TTGIR.
- `access`: the pattern of each load and store by line of the source, and sectors of its requests.
- `banks`: conflicts of shared memory, from the layouts of buffers and registers.
- `findings`: uncoalesced access, L2 misses, conflicts, stages, registers, tail; what to try.
- `summary`: all of it for one config, and as JSON.
- `conversion`: a layout of an argument that would be faster, and what converting to it costs.
"""
