"""The ranks of a `torch.distributed` job launch one config a key.

`resolving` stands in the way of a miss, `agreement` settles a key with the other ranks, and
`words` are the entries of their common store.
"""
