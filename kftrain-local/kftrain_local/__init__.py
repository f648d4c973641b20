"""A cluster on this machine, for trying things out and for tests. `cluster` combines a `server`,
`controllers` and a node `agent`; `faults` makes any Kubernetes API fail on purpose.

Nothing here imports Airflow or a Kubernetes client library.
"""
