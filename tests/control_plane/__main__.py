"""python -m tests.control_plane build | up | down | kubeconfig | schemas"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from types import FrameType

from tests.control_plane import go_tool
from tests.control_plane.build import ensure_built, say_on_stderr
from tests.control_plane.errors import ControlPlaneError
from tests.control_plane.launcher import PROFILES, ControlPlane
from tests.control_plane.machine_lock import MachineLock, Record, read_record
from tests.control_plane.schemas import write_schemas

_SECONDS_TO_END = 30
_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except ControlPlaneError as error:
        say_on_stderr(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say_on_stderr("interrupted")
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.control_plane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what is not built yet")
    build.add_argument(
        "--check-go", action="store_true", help="build nothing; exit code 2 if Go cannot"
    )
    up = commands.add_parser("up", help="start a control plane and keep it until Ctrl-C")
    up.add_argument("--profile", choices=PROFILES, default=PROFILES[0])
    up.add_argument("--port", type=int, help="of the API server; otherwise any that is free")
    up.add_argument(
        "--no-wait", action="store_true", help="fail if another one is up instead of waiting for it"
    )
    commands.add_parser("down", help="end the one that `up` keeps, or what is left of a killed one")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    commands.add_parser("schemas", help="write anew what the embedded cluster knows of fields")
    return parser


def _build(options: argparse.Namespace) -> int:
    if options.check_go:
        go_tool.find_go()
    else:
        say_on_stderr(f"control plane: built, in {ensure_built().binaries}")
    return 0


def _up(options: argparse.Namespace) -> int:
    # The end of a terminal, and `down`, must clean up like Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    plane = ControlPlane(
        options.profile, port=options.port, wait=not options.no_wait, stoppable=True
    )
    with plane:
        sys.stdout.write(
            f"export KUBECONFIG={plane.kubeconfig}\n"
            "# stop it: Ctrl-C here, or `python -m tests.control_plane down` elsewhere\n"
        )
        sys.stdout.flush()
        _keep(plane)
    say_on_stderr("control plane: ended, nothing is left of it")
    return 0


def _keep(plane: ControlPlane) -> None:
    try:
        while True:
            plane.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        return


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _down(options: argparse.Namespace) -> int:
    record = read_record()
    if record is None or not record.launcher.lives():
        lock = MachineLock(say_on_stderr)
        lock.acquire(wait=False)  # it removes what is left
        lock.release()
        say_on_stderr("control plane: none is up")
        return 0
    if not record.stoppable:
        raise ControlPlaneError(
            f"it belongs to process {record.launcher.pid} (tests?) and ends with that"
        )
    _end(record)
    say_on_stderr("control plane: ended")
    return 0


def _end(record: Record) -> None:
    os.kill(record.launcher.pid, signal.SIGTERM)
    deadline = time.monotonic() + _SECONDS_TO_END
    while record.launcher.lives():
        if time.monotonic() > deadline:
            raise ControlPlaneError(
                f"process {record.launcher.pid} has not ended after {_SECONDS_TO_END} s"
            )
        time.sleep(0.05)


def _kubeconfig(options: argparse.Namespace) -> int:
    record = read_record()
    if record is None or not record.launcher.lives() or not record.kubeconfig:
        raise ControlPlaneError("no control plane is ready; start one with make control-plane-up")
    sys.stdout.write(f"{record.kubeconfig}\n")
    return 0


def _schemas(options: argparse.Namespace) -> int:
    say_on_stderr(f"control plane: wrote {write_schemas()}")
    return 0


_COMMANDS = {
    "build": _build,
    "up": _up,
    "down": _down,
    "kubeconfig": _kubeconfig,
    "schemas": _schemas,
}

if __name__ == "__main__":
    sys.exit(main())
