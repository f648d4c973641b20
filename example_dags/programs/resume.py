"""Saves its state when it is asked to end, and goes on from there in the next job."""

import json
import os
import signal
import sys
import time
from pathlib import Path

folder = Path(os.environ["CHECKPOINTS"], os.environ["KFTRAIN_RUN_ID"])
folder.mkdir(parents=True, exist_ok=True)
checkpoint = folder / "step"
step = begun = int(checkpoint.read_text()) if checkpoint.exists() else 0


def save_and_exit(*_):
    checkpoint.write_text(str(step))
    sys.exit(143)  # not 0, which would be a success


signal.signal(signal.SIGTERM, save_and_exit)
while step < int(os.environ["STEPS"]):
    step += 1
    print("step", step, flush=True)
    time.sleep(0.2)
result = {"steps": step, "begun_at_step": begun, "attempt": os.environ["KFTRAIN_ATTEMPT"]}
Path(os.environ["KFTRAIN_RESULT_FILE"]).write_text(json.dumps(result))
