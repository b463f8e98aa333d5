"""A topic's settings on their way from Kafka to a store, and back: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lastword.config import COMPACT, TOPIC_KEYS, Setting, topic_config
from lastword.errors import InvalidConfigError
from lastword.kafka.cluster import KafkaSetting

POLICY, COMPRESSION, TOMBSTONES = "cleanup.policy", "compression.type", "delete.retention.ms"


class Taken(NamedTuple):
    """What a copy takes over, and what it cannot, with the reason."""

    settings: dict[str, str]
    left: dict[str, str]


def taken_over(theirs: Mapping[str, KafkaSetting], instead: Mapping[str, str]) -> Taken:
    """The settings of a copy: what was set in Kafka, by topic or broker, unless `instead` says other.

    The policy always: where nobody set it, Kafka deletes and a store compacts.
    """
    settings, left = {}, {}
    for name, its in theirs.items():
        if name not in TOPIC_KEYS or (its.is_default and name != POLICY):
            continue
        if name == COMPRESSION and its.value == "producer":
            continue  # a codec of the files: the store's own
        try:
            topic_config({name: its.value})
        except InvalidConfigError as error:
            left[name] = str(error)
        else:
            settings[name] = its.value
    return Taken({**settings, **instead}, {n: why for n, why in left.items() if n not in instead})


def tombstones_ms(theirs: Mapping[str, KafkaSetting]) -> int | None:
    """How long Kafka keeps tombstones; None if it does not compact."""
    return int(theirs[TOMBSTONES].value) if COMPACT in theirs[POLICY].value else None


def handed_over(settings: list[Setting]) -> dict[str, str]:
    """The settings of a topic that is made in Kafka: what was set here, and the policy."""
    return {
        s.key: s.value
        for s in settings
        if s.key == POLICY or (s.source != "default" and s.value != s.default)
    }
