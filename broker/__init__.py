"""A real Kafka broker on 127.0.0.1, to compare with and to copy from: for tests and benchmarks.

Its jars come from Maven, once, into `.cache/kafka`. It lives in a folder of its own, which goes with
it; if it fails, its log stays. `python -m broker start` and `stop` run one by hand.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.jars import BrokerError, broker_jars
from lastword.jobs.session import java_binary

__all__ = [
    "QUICK",
    "STOCK",
    "Broker",
    "BrokerError",
    "broker",
    "is_up",
    "start",
    "stop",
    "unused_port",
]

QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # up in 2 s, slow later
STOCK = (  # as Kafka's own scripts start it
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
)

_LOGGING = Path(__file__).parent / "log4j2.properties"
_CLUSTER_ID = "A" * 22
_START_SECONDS, _STOP_SECONDS = 150, 30
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "20",
}


@dataclass(frozen=True)
class Broker:
    """A broker that is up: where clients find it, the folder it lives in, its process."""

    bootstrap: str
    folder: Path
    pid: int

    @property
    def data(self) -> Path:
        """Where its partitions lie."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.folder / "broker.log"


@contextmanager
def broker(
    flags: Sequence[str] = QUICK, settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A broker that runs as long as the block does. `settings` are added to server.properties."""
    its = start(flags, settings)
    try:
        yield its
        if not is_up(its):
            raise BrokerError(f"Kafka's broker ended by itself; its log is {its.log}")
    except BaseException:
        stop(its, keep_log=True)
        raise
    stop(its)


def start(
    flags: Sequence[str] = QUICK, settings: Mapping[str, str] | None = None, port: int = 0
) -> Broker:
    """A broker that is up, in a folder of its own; it runs until it is stopped. Port 0 is any."""
    jars = broker_jars()
    folder = Path(tempfile.mkdtemp(prefix="lastword-kafka-"))
    port = _configured(folder, settings or {}, port)
    config = str(folder / "server.properties")
    java = [java_binary(), *flags, "-cp", f"{jars}/*"]
    java.append(f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
    format_ = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", config]
    with (folder / "broker.log").open("w") as log:
        if subprocess.run(format_, stdout=log, stderr=log, check=False).returncode:
            raise BrokerError(f"Kafka's folder could not be formatted; the log is {log.name}")
        process = subprocess.Popen(
            [*java, "kafka.Kafka", config], stdout=log, stderr=log, start_new_session=True
        )
    its = Broker(f"127.0.0.1:{port}", folder, process.pid)
    try:
        _wait(process, its)
    except BaseException:
        stop(its, keep_log=True)
        raise
    return its


def stop(its: Broker, *, keep_log: bool = False) -> None:
    """End it, and delete its folder; or all of it but the log."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if is_up(its):
            os.kill(its.pid, number)
        deadline = time.monotonic() + _STOP_SECONDS
        while is_up(its) and time.monotonic() < deadline:
            time.sleep(0.05)
    shutil.rmtree(its.data if keep_log else its.folder, ignore_errors=True)


def is_up(its: Broker) -> bool:
    """Whether its process is alive, and is a broker: numbers of processes come again."""
    with suppress(ChildProcessError):  # it may be a child of ours, which must be asked about
        os.waitpid(its.pid, os.WNOHANG)
    try:
        return str(its.folder).encode() in Path(f"/proc/{its.pid}/cmdline").read_bytes()
    except OSError:
        return False


def _configured(folder: Path, settings: Mapping[str, str], port: int) -> int:
    """Write server.properties; the port for clients."""
    port, controller = port or unused_port(), unused_port()
    clients, controllers = f"PLAINTEXT://127.0.0.1:{port}", f"127.0.0.1:{controller}"
    all_ = {
        **_SETTINGS,
        "listeners": f"{clients},CONTROLLER://{controllers}",
        "advertised.listeners": clients,
        "controller.quorum.voters": f"1@{controllers}",
        "log.dirs": str(folder / "data"),
        **settings,
    }
    lines = "".join(f"{key}={value}\n" for key, value in all_.items())
    (folder / "server.properties").write_text(lines)
    return port


def unused_port() -> int:
    """A port that nobody has now, and that no system gives to whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _wait(process: subprocess.Popen[bytes], its: Broker) -> None:
    """Until the broker says that it is up."""
    deadline = time.monotonic() + _START_SECONDS
    while "Kafka Server started" not in its.log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise BrokerError(f"Kafka's broker did not come up; its log is {its.log}")
        time.sleep(0.05)
