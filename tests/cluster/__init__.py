"""One conformance suite: what a cluster with training operators does, told as scenarios."""
