"""Descriptors of the devices asmtune ships: one JSON file a device, a source at each figure."""
