"""Run by `make demo`."""

import signal
import sys

# Until there is something to clean up, Ctrl-C ends it without a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from demo.stage import main  # noqa: E402

sys.exit(main())
