"""`python -m kftrain_local.agent`."""

from __future__ import annotations

import sys

from kftrain_local.agent.agent import main

sys.exit(main())
