"""The report explorer: prune reports as one HTML page that opens from disk.

    reports ──model──▶ columns ─┐
    artifacts ──code──▶ texts ──┼──page──▶ HTML
    timings ──timings──▶ µs ────┘

The page holds all it needs: data deflated in base64, scripts and styles inline, and a policy
that forbids the network. `static/` is what it is made of, `static/vendor/` what others wrote.
"""
