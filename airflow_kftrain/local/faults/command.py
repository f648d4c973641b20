"""A proxy in front of any Kubernetes API server that makes it misbehave, on purpose and repeatably.

python -m airflow_kftrain.local.faults --kubeconfig FILE [--fault RULE] ...
"""

from __future__ import annotations

import argparse
import functools
import logging
import signal
import sys
import time

from airflow_kftrain.errors import KfTrainError
from airflow_kftrain.local.faults.proxy import CannotProxy, FaultProxy, running
from airflow_kftrain.local.faults.rules import BadFault, Call, Fault

__all__ = ["BadFault", "Call", "CannotProxy", "Fault", "FaultProxy", "running"]

_HELP = """\
A RULE is words NAME=VALUE; what is left out does not matter.
  which calls  verb=     get list watch create update patch delete deletecollection
               resource= plural, as in the URL: pods, pods/log, pytorchjobs, /version
               share=    0.5 hits the first and then every other one, exactly 50 of 100 (1)
               times=    rest after so many hits
  what happens code=     401 403 404 409 410 429 500 503 504; a watch has its 410 in the stream
               retry_after= seconds, of a 429 (1)
               delay=    seconds before the call is passed on or refused
               cut=      seconds from the answer until the connection is closed, without an end;
                         0: the server does what was asked, the answer is lost

COMMANDS, a line each on standard input:
  add RULE, clear   clear also ends freeze and away
  freeze, thaw      accept connections and never answer; go on
  away [SECONDS]    refuse and reset connections, until `back` or for so many seconds
  back
  cut, expire       end the watches that are open: without an end, or with an ERROR 410 event
  calls             how often was asked for what

  --fault 'verb=create resource=pytorchjobs share=0.5 code=503'
"""

_COMMANDS = ("freeze", "thaw", "away", "back", "cut", "expire", "clear")


def _obey(proxy: FaultProxy, line: str) -> str:
    """What is to be said of it; raises BadFault."""
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
            raise BadFault(f"away {rest}: it has to be seconds") from error
        return "ok"
    if name not in _COMMANDS or rest:
        raise BadFault(f"{line.strip()!r} is not one of add RULE, calls, {', '.join(_COMMANDS)}")
    number = getattr(proxy, name)()
    return "ok" if number is None else f"ok {number}"


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_kftrain.local.faults",
        description="Stand between clients and a Kubernetes API server, and make faults.",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--kubeconfig", required=True, help="the API server to stand in front of")
    add("--write", default="", metavar="FILE", help="the kubeconfig for clients (a temporary one)")
    add("--port", default=0, type=int, help="port on loopback (any free one)")
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
    except KfTrainError as error:
        print(f"cannot run: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _serve(proxy: FaultProxy) -> None:
    """Says where its kubeconfig is, then does what it is told, until a signal comes."""
    say = functools.partial(print, flush=True)
    say(proxy.kubeconfig)
    for line in sys.stdin:
        try:
            say(_obey(proxy, line))
        except BadFault as error:
            say(error, file=sys.stderr)
    while True:
        # Not signal.pause(): one that comes just before it would never wake it up.
        time.sleep(1)
