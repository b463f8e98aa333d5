"""Spark's Python daemon, except that a worker whose Spark has gone ends without a word.

When Spark ends it closes the sockets of its idle workers. Each then tries to answer, and Spark's own
daemon prints the traceback of that: after the last word of a command that went well.
"""

from __future__ import annotations

import os
import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Serve tasks; end quietly if nobody is there to be answered."""
    try:
        return _worker(sock, authenticated)
    except ConnectionError:
        os._exit(1)


daemon.worker = worker

if __name__ == "__main__":
    daemon.manager()
