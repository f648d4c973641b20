"""Airflow imports this when it starts. The sweeper waits less long than for real jobs, so that the
tests need not wait; and Airflow's parts wait longer for SQLite."""

import sys
from datetime import timedelta

# A scheduler that waits for the database in vain gives up for good. Not so the API server, whose
# calls may wait for each other in one event loop: only giving up ends that.
connect_args = {"timeout": 5 if "api-server" in sys.argv else 60}

if "triggerer" in sys.argv:
    from airflow_kftrain.watching.sweeping import Sweeper

    defaults = Sweeper.__init__.__kwdefaults__ or {}
    defaults |= {"grace": timedelta(seconds=5), "pause": 1.0}
