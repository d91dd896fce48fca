"""Tuning: from a request to a record.

    request -> store, shipped, lease -> initial state -> search -> finals -> record

A `TuningRequest` (`request`) holds a launch, its key, its space and the provenance that its
config will have. `Tuner` answers it with a `TuningResult`: it looks into the stores, takes the
lease of the key, or waits for the process that holds it, and runs a `Session`. A session judges
all configs before compiling (`initial_state`), opens the bench, and runs the stages (`stages`):
the search (`search`), which compiles in the background (`background_compiler`) while the GPU
times, and the finals. `listener` hears of it, writes the trace and reports progress.
Where nothing is known of the device, or nothing can be read, `unranked` compiles and times all
configs by Triton's own means. `options` are the user's choices.
"""
