"""From a compiled or sketched config to its rank: features, scorers and the pruning funnel."""
