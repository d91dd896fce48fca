"""Descriptors of the devices that ship, by family; each figure with its source."""
