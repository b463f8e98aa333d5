"""`python -m broker start` and `stop`: a broker to play with; `make kafka` and `make kafka-stop`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from broker import Broker, BrokerError, is_up, start, stop

_NOTE = Path(__file__).parent.parent / ".cache" / "kafka" / "running.json"


def main(words: list[str]) -> int:
    try:
        match words:
            case ["start"] if _NOTE.exists() and is_up(_noted()):
                print(f"a broker runs already: {_noted().bootstrap}; stop it first")
                return 1
            case ["start"]:
                its = _started()
                note = {"bootstrap": its.bootstrap, "folder": str(its.folder), "pid": its.pid}
                _NOTE.write_text(json.dumps(note))
                print(f"Kafka runs: --bootstrap-servers {its.bootstrap} (pid {its.pid}, {its.log})")
            case ["stop"] if _NOTE.exists():
                stop(_noted())
                _NOTE.unlink()
            case ["stop"]:
                print("no broker was started here")
            case _:
                print("usage: python -m broker start|stop", file=sys.stderr)
                return 2
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _started() -> Broker:
    """At Kafka's own port, unless it is taken."""
    try:
        return start(port=9092)
    except OSError:
        return start()


def _noted() -> Broker:
    note = json.loads(_NOTE.read_text())
    return Broker(note["bootstrap"], Path(note["folder"]), note["pid"])


sys.exit(main(sys.argv[1:]))
