"""A node that runs pods as processes: docs/local-agent.md."""
