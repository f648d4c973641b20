"""Connects to every process that TF_CONFIG names, and writes their number as the termination
message."""

import json
import os
import socket
import time

config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
host, port = cluster[task["type"]][task["index"]].split(":")
server = socket.create_server((host, int(port)), backlog=50)
peers = [peer.split(":") for role in cluster.values() for peer in role]
for host, port in peers:
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
with open(os.environ["RESULT_FILE"], "w", encoding="utf-8") as result:
    result.write(str(len(peers)))
time.sleep(1)  # until the others have connected to this one
