"""`make demo`: training jobs through a real Airflow on the embedded cluster."""
