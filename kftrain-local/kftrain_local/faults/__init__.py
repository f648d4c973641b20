"""Injects faults into a Kubernetes API: docs/fault-proxy.md."""
