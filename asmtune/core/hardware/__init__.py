"""Targets: a device's limits and rates, each with the source of its figure.

`model` defines `Target`, `descriptor` reads and checks one from JSON and completes it with limits
and rates by compute capability, `driver` asks the device at hand, and `shipped` finds the target of
a name: in the user's folder, among those that ship, or by the driver.

A descriptor is a JSON file. The shipped ones lie in `asmtune/core/hardware/devices/`, by family,
and state only what differs from their architecture; a user's own file states every field. A field
holds `{"value": ..., "source": ..., "kind": ...}` or the bare value, whose source is then "user".
Field names include their units; a flop is one multiplication or one addition, so that a fused
multiply-add counts as two.
"""
