"""Targets: a device's limits and rates, each with the source of its figure.

`shipped` reads and checks descriptors, `model` defines `Target`.

A descriptor is a JSON file. The shipped ones lie in `asmtune/core/hardware/devices/`; a user's own
file has the same fields. A field holds `{"value": ..., "source": ..., "kind": ...}` or
the bare value, whose source is then "user". Units stand in the field names; a flop is
one multiplication or one addition, so that a fused multiply-add counts as two.
"""
