"""Faults of a Kubernetes API, made on purpose: docs/fault-proxy.md."""
