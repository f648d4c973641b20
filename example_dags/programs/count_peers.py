"""Connects to every process that TF_CONFIG names, as TensorFlow's strategies do first."""

import json
import os
import socket
import time
from pathlib import Path

config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]


def patiently(connect):
    """Retries, since processes start at different times, and names resolve some seconds later."""
    end = time.monotonic() + 60
    while True:
        try:
            return connect()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def address(place):
    host, port = place.split(":")
    return host, int(port)


peers = [address(place) for places in config["cluster"].values() for place in places]
own = address(config["cluster"][role][index])
server = patiently(lambda: socket.create_server(own, backlog=50))
for peer in peers:
    patiently(lambda peer=peer: socket.create_connection(peer)).close()
print(f"{role} {index} has reached {len(peers)} processes", flush=True)
for _ in peers:  # until all processes have connected to this one
    server.accept()[0].close()
Path(os.environ["KFTRAIN_RESULT_FILE"]).write_text(json.dumps({"processes": len(peers)}))
