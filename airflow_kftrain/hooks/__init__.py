"""All that talks to a cluster; nothing else imports a Kubernetes client.

`api_calls` says what is asked, `answers` what an answer means, `talks` in which order calls are
made and when they are tried again: pure, values in and values out. The two hooks carry calls and
answers to and fro with the credentials of an Airflow connection, one with threads and one in an
event loop.
"""
