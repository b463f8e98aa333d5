"""A real Kafka broker on 127.0.0.1, to compare with.

Its jars come from Maven, once, into `.cache/kafka`. It lives in a temporary folder and goes with it;
if it fails, its log stays.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from lastword.jobs.session import java_binary

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

_HERE = Path(__file__).parent / "kafka"
_CACHE = Path(__file__).parent.parent / ".cache" / "kafka"
_CLUSTER_ID = "A" * 22
_START_SECONDS, _STOP_SECONDS = 60, 30
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


class BrokerError(Exception):
    """There is no broker to be had; says why."""


@dataclass(frozen=True)
class Broker:
    """A broker that is up: where clients find it, where its partitions lie, its process."""

    bootstrap: str
    data: Path
    pid: int


@contextmanager
def broker(
    flags: Sequence[str] = QUICK, settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A broker that runs as long as the block does. `settings` are added to server.properties."""
    jars = _jars()
    folder = Path(tempfile.mkdtemp(prefix="lastword-kafka-"))
    try:
        port = _configured(folder, settings or {})
        config = str(folder / "server.properties")
        java = [java_binary(), *flags, "-cp", f"{jars}/*"]
        java.append(f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}")
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", config]
        with (folder / "broker.log").open("w") as log:
            if subprocess.run(format_, stdout=log, stderr=log, check=False).returncode:
                raise _failed(folder, "its folder could not be formatted")
            process = subprocess.Popen([*java, "kafka.Kafka", config], stdout=log, stderr=log)
        try:
            _wait(process, folder)
            yield Broker(f"127.0.0.1:{port}", folder / "data", process.pid)
            if process.poll() is not None:
                raise _failed(folder, f"it ended by itself with {process.returncode}")
        finally:
            _stop(process)
    except BrokerError:
        shutil.rmtree(folder / "data", ignore_errors=True)
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _jars() -> Path:
    """The folder of jars for our pom; fetched if it is not there."""
    pom = _HERE / "pom.xml"
    jars = _CACHE / f"{crc32(pom.read_bytes()):08x}"
    if jars.exists():
        return jars
    if (maven := shutil.which("mvn")) is None:
        raise BrokerError("no mvn here, which fetches Kafka's jars")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as new:
        fetch = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        fetch += ["-DincludeScope=runtime", f"-DoutputDirectory={new}/jars"]
        done = subprocess.run(fetch, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BrokerError(f"mvn could not fetch Kafka's jars: {done.stdout.strip()[:500]}")
        if not jars.exists():  # another process may have been quicker
            (Path(new) / "jars").rename(jars)
    return jars


def _configured(folder: Path, settings: Mapping[str, str]) -> int:
    """Write server.properties; the port for clients."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        port, controller = (each.getsockname()[1] for each in sockets)
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
    return int(port)


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until the broker says that it is up."""
    deadline = time.monotonic() + _START_SECONDS
    while "Kafka Server started" not in (folder / "broker.log").read_text():
        if process.poll() is not None:
            raise _failed(folder, f"it ended with {process.returncode} before it was up")
        if time.monotonic() > deadline:
            raise _failed(folder, f"it was not up after {_START_SECONDS} s")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _failed(folder: Path, how: str) -> BrokerError:
    return BrokerError(f"Kafka's broker failed: {how}; its log is {folder / 'broker.log'}")
