"""What works on the objects of the embedded cluster, as clients of its API."""
