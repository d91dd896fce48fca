"""The report explorer: prune reports as one HTML page that opens from disk.

The page holds all it needs: data deflated in base64, script and styles inline, and a policy that
forbids the network. `static/` is what it is made of.
"""
