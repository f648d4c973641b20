"""One conformance suite: what a cluster with training operators does, as scenarios."""
