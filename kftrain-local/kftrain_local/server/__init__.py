"""The API server of the embedded cluster: docs/local-cluster.md."""
