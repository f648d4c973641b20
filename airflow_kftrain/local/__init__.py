"""A cluster on this machine, for trying and testing: `cluster` is the whole, made of a `server`,
`controllers` and a node `agent`; `faults` make any Kubernetes API fail on purpose.

Nothing here imports Airflow or a Kubernetes client.
"""
