"""A cluster on this machine: pods run as processes.

aiohttp, PyYAML and the standard library only. Imports neither Airflow nor a Kubernetes client, and
is not imported by the rest of the package.
"""
