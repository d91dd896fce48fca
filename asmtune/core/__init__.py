"""The nouns: configs, spaces, problems, keys, records, devices and what users type."""
