"""The report explorer: prune reports as one HTML page that opens from disk.

    artifacts ──code──▶ texts ──┐
    timings ──timings──▶ µs ────┼──page──▶ HTML
    reports ────────────────────┘

The page holds all it needs: data deflated in base64, scripts and styles inline, and a policy
that forbids the network. `static/` is what it is made of, `static/vendor/` what others wrote.
"""
