"""`python -m airflow_kftrain.local.agent`."""

from __future__ import annotations

import sys

from airflow_kftrain.local.agent.agent import main

sys.exit(main())
