"""Jars by Maven: a pom of ours each, fetched once into `.cache/kafka`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from zlib import crc32

_HERE = Path(__file__).parent
_CACHE = _HERE.parent / ".cache" / "kafka"


class BrokerError(Exception):
    """There is no broker to be had; says why."""


def broker_jars() -> Path:
    """The folder of Kafka's own jars."""
    return _fetched(_HERE / "pom.xml")


def connector_jars() -> str:
    """The jars of Spark's Kafka source and sink, as `spark.jars` takes them."""
    return ",".join(str(jar) for jar in sorted(_fetched(_HERE / "connector.pom.xml").glob("*.jar")))


def _fetched(pom: Path) -> Path:
    """The folder of jars for a pom; fetched if it is not there."""
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
        try:
            (Path(new) / "jars").rename(jars)
        except OSError:
            if not jars.exists():  # else another process was quicker
                raise
    return jars
