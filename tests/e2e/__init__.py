"""The whole of it, on a real Airflow."""
