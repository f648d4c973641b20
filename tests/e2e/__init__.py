"""Tests of everything together, on a real Airflow."""
