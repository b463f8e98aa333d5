"""lastword publish"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lastword.cli.kafka import (
    AllowLoss,
    BootstrapServers,
    CommandConfig,
    Jars,
    KafkaSpark,
    MaxOffsets,
    Packages,
)
from lastword.cli.options import AsJson, SparkConf, SparkMaster, StoreUrl, TopicName, opened
from lastword.cli.render import errors, plain, show_line
from lastword.jobs.spark import SparkRunner
from lastword.kafka.cluster import Cluster, client_properties
from lastword.kafka.plan import MOST_OFFSETS
from lastword.kafka.publish import Publisher, Publishing, PublishRound, View
from lastword.store import Store


def publish(
    topic: TopicName,
    bootstrap_servers: BootstrapServers,
    to: Annotated[str, typer.Option(help="Its name in Kafka, if it is another one.")] = "",
    view: Annotated[
        View, typer.Option(help="The log, or only the last record of every key.")
    ] = View.LOG,
    tombstones: Annotated[
        bool, typer.Option("--tombstones/--no-tombstones", help="Send deletions, too.")
    ] = True,
    append: Annotated[
        bool, typer.Option("--append", help="Send, even if the topic in Kafka has records.")
    ] = False,
    max_offsets: MaxOffsets = MOST_OFFSETS,
    allow_loss: AllowLoss = False,
    command_config: CommandConfig = None,
    packages: Packages = None,
    jars: Jars = None,
    master: SparkMaster = None,
    spark_conf: SparkConf = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fill a topic of a Kafka cluster from the store; made there if it is missing.

    Sends what the topic has now, and next time what has come since. After a crash, a round may be sent
    again. Timestamps are those of the sending.
    """
    asked = Publishing(
        topic=topic,
        to=to,
        view=view,
        tombstones=tombstones,
        most_offsets=max_offsets,
        allow_loss=allow_loss,
        is_append=append,
    )
    properties = client_properties(command_config)
    with opened(store) as opened_store:
        opened_store.topic(topic)  # an unknown one is known before Spark is started
        spark = KafkaSpark(master, spark_conf, packages, jars)
        with spark.cluster(bootstrap_servers, properties) as (cluster, runner):
            _publish(opened_store, cluster, runner, asked, as_json)


def _publish(
    store: Store, cluster: Cluster, runner: SparkRunner, asked: Publishing, as_json: bool
) -> None:
    publisher = Publisher(store.base, store.url, cluster, runner, asked)
    for remark in publisher.remarks:
        errors.print(remark, markup=False, highlight=False, soft_wrap=True)
    done = PublishRound({}, 1, 0)
    while done.lag:
        done = publisher.round()
        if as_json:
            print(json.dumps(plain(done)), flush=True)
            continue
        for number, (start, end) in done.sent.items():
            show_line(f"{asked.topic}-{number}: offsets {start} to {end - 1}")
        show_line(f"round done in {done.seconds:.1f} s; {done.lag} offset(s) left")
    if not as_json:
        show_line(f"all is sent; position kept as group {publisher.group}")
