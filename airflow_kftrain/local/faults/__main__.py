"""`python -m airflow_kftrain.local.faults`."""

from __future__ import annotations

import sys

from airflow_kftrain.local.faults.command import main

sys.exit(main())
