"""`python -m kftrain_local.faults`."""

from __future__ import annotations

import sys

from kftrain_local.faults.command import main

sys.exit(main())
