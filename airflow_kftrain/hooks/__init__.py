"""Talks to clusters; nothing else imports a Kubernetes client.

`api_calls` builds requests and `answers` interprets responses: values in, values out. `operations`
decides in which order calls are made and when they are repeated. AsyncTrainingJobHook sends them
with the credentials of an Airflow connection; TrainingJobHook is the same for code that blocks.
"""
