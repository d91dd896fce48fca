"""Numbers read off a compiled config; `catalog.FEATURES` is the one list of them.

    artifact --ProfileReader--> Profile --launch_features(work)--> Features
               in the worker              here, a launch

- `catalog`: the features, and how each is read.
- `reader` and `profile`: assembly to segments (code that runs equally often).
- `amd`: the same of AMD's assembly, which `reader_for` chooses.
- `execution`: runs of each segment, from the trips of the IR's loops.
- `cycles` and `chain`: cycles of each unit of an SM, and of the chain of latencies.
- `requests`: the sectors and lines that a memory instruction of a warp touches.
- `sketch`: the same profile before compiling, estimated from TTGIR.
"""
