"""A proxy in front of any Kubernetes API server that injects faults, on purpose and repeatably.

python -m kftrain_local.faults --kubeconfig FILE [--fault RULE] ...
"""

from __future__ import annotations

import argparse
import functools
import logging
import signal
import sys
import time

from kftrain_local.errors import LocalError
from kftrain_local.faults.proxy import CannotProxy, FaultProxy, running
from kftrain_local.faults.rules import BadFault, Call, Fault

__all__ = ["BadFault", "Call", "CannotProxy", "Fault", "FaultProxy", "running"]

_HELP = """\
A RULE consists of words NAME=VALUE, all of them optional.
  which calls  verb=     get list watch create update patch delete deletecollection
               resource= plural, as in the URL: pods, pods/log, pytorchjobs, /version
               share=    0.5 hits the first and then every second one, exactly 50 of 100 (1)
               times=    no effect after so many hits
  what happens code=     401 403 404 409 410 429 500 503 504; a watch gets 410 as an ERROR event
               retry_after= seconds, for a 429 (1)
               delay=    seconds before the call is passed on or rejected
               cut=      seconds from the answer until the connection breaks off;
                         0: the server executes the call, and the answer is lost

COMMANDS, one per line on standard input:
  add RULE, clear   clear also ends freeze and away
  freeze, thaw      accept connections but never answer; answer again
  away [SECONDS]    refuse and reset connections, until `back` or for so many seconds
  back              accept connections again
  cut, expire       end all open watches: break them off, or send an ERROR event, code 410
  calls             count the calls by verb and resource

  --fault 'verb=create resource=pytorchjobs share=0.5 code=503'
"""

_COMMANDS = ("freeze", "thaw", "away", "back", "cut", "expire", "clear")


def _obey(proxy: FaultProxy, line: str) -> str:
    """Returns the answer to a command. Raises BadFault."""
    name, _, rest = line.strip().partition(" ")
    if line.strip() == "calls":
        return "\n".join(f"{n} {' '.join(call)}" for call, n in sorted(proxy.calls.items()))
    if name == "add":
        proxy.add(Fault.parse(rest))
        return "ok"
    if name == "away" and rest:
        try:
            proxy.away(float(rest))
        except ValueError as error:
            raise BadFault(f"away {rest}: must be a number of seconds") from error
        return "ok"
    if name not in _COMMANDS or rest:
        raise BadFault(f"{line.strip()!r} is not one of add RULE, calls, {', '.join(_COMMANDS)}")
    number = getattr(proxy, name)()
    return "ok" if number is None else f"ok {number}"


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kftrain_local.faults",
        description="Inject faults between clients and a Kubernetes API server.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--kubeconfig", required=True, help="the API server")
    add(
        "--write",
        default="",
        metavar="FILE",
        help="where to write the kubeconfig for clients (default: a temporary file)",
    )
    add("--port", default=0, type=int, help="the port on loopback (default: any free one)")
    add("--fault", action="append", default=[], metavar="RULE", help="may be repeated")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    given = _arguments(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        faults = [Fault.parse(rule) for rule in given.fault]
        proxy = FaultProxy(given.kubeconfig, *faults, write=given.write, port=given.port)
        with running(proxy):
            _serve(proxy)
    except LocalError as error:
        print(f"cannot run: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _serve(proxy: FaultProxy) -> None:
    """Prints the path of its kubeconfig, then executes commands until a signal arrives."""
    say = functools.partial(print, flush=True)
    say(proxy.kubeconfig)
    for line in sys.stdin:
        try:
            say(_obey(proxy, line))
        except BadFault as error:
            say(error, file=sys.stderr)
    while True:
        # Not signal.pause(): a signal that arrives just before it would not end it.
        time.sleep(1)
