"""Airflow imports this when it starts: the sweeper is less patient than with people's jobs, so that
the tests need not be more patient."""

import sys
from datetime import timedelta

if "triggerer" in sys.argv:
    from airflow_kftrain.watching.sweeping import Sweeper

    defaults = Sweeper.__init__.__kwdefaults__ or {}
    defaults |= {"grace": timedelta(seconds=5), "pause": 1.0}
