"""The controllers of the embedded cluster, as clients of its API."""
