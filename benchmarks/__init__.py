"""Scripts that measure; each writes what it claims, with provenance, to benchmarks/results/."""
