"""Say why a config is slow, in the classes people know, each with its numbers.

    profile, work --access--> access patterns --findings--> text

- `access`: the pattern of each load and store by line of the source, and sectors of its requests.
- `findings`: uncoalesced access, conflicts, stages, registers, tail.

Both read what the features are made of, so that they say what the prediction counts.
"""
