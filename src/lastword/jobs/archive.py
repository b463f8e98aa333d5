"""An archive of Spark's classes, made once per machine: Spark starts in half the time with it.

Java can load classes from a shared archive instead of unpacking and checking them from hundreds of
jars. The archive is never required: Java ignores one that does not fit, and so do we.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from lastword.errors import SparkError

_RECORD = """
import sys
from lastword.jobs.session import found_or_started
options = f"-XX:ArchiveClassesAtExit={sys.argv[1]} -Xlog:disable"
session = found_or_started("local[1]", {"spark.driver.extraJavaOptions": options})
session.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").toArrow()
java = session.sparkContext._gateway.proc
session.stop()
java.stdin.close()
java.wait()
"""


def path(java: str) -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    binary = os.path.realpath(java)
    key = f"{version('pyspark')} {binary} {os.stat(binary).st_mtime_ns}"
    return Path(cache) / "lastword" / f"spark-{sha256(key.encode()).hexdigest()[:16]}.jsa"


def options(java: str) -> str:
    """The options with which Java uses the archive; none if it was not made."""
    archive = path(java)
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else ""


def make(java: str) -> Path:
    """Make the archive: start Spark once, and let Java write down what it has loaded."""
    archive = path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    unfinished = archive.with_suffix(f".{os.getpid()}")
    words = [sys.executable, "-c", _RECORD, str(unfinished)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or not unfinished.exists():
        said = (done.stderr.strip().splitlines() or ["Java wrote no archive"])[-1]
        raise SparkError(f"the archive could not be made: {said}")
    unfinished.rename(archive)
    return archive
