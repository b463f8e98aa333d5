"""Topics of a cluster and their copies here: which are wanted, whether they belong together.

A copy that is missing is made, with the partitions and the settings of its source. One that is another
topic's, or that of a topic which was deleted and made anew, is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lastword.catalog import queries, topics
from lastword.config import topic_config
from lastword.errors import InvalidArgumentError, KafkaError, LastwordError, MirrorError
from lastword.foundation import Foundation
from lastword.kafka.cluster import Cluster, KafkaSetting, KafkaTopic, sound
from lastword.kafka.plan import MOST_OFFSETS, Standing, Trouble
from lastword.kafka.settings import POLICY, TOMBSTONES, taken_over, tombstones_ms
from lastword.model import Source, TopicRow


@dataclass(frozen=True)
class Wanted:
    """What is mirrored, and how."""

    names: tuple[str, ...] = ()
    pattern: str | None = None  # for whole names; topics that are made later are found too
    prefix: str = ""  # of the names here
    settings: Mapping[str, str] = field(default_factory=dict)  # instead of Kafka's
    most_offsets: int = MOST_OFFSETS  # in a round
    allow_loss: bool = False

    def __post_init__(self) -> None:
        if bool(self.names) == (self.pattern is not None):
            raise InvalidArgumentError("say what to mirror: topics, or a pattern for their names")
        if self.most_offsets < 1:
            raise InvalidArgumentError(f"a round copies 1 offset or more, not {self.most_offsets}")
        topic_config(self.settings)
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise InvalidArgumentError(
                f"pattern {self.pattern!r} is no regular expression: {error}"
            ) from None

    def is_match(self, name: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, name) is not None


class _Copy(NamedTuple):
    """A topic here, its source, and how long that keeps tombstones."""

    row: TopicRow
    topic: KafkaTopic
    tombstones_ms: int | None


class Counterparts:
    """A look at both sides. What was made is in `remarks`, what cannot be copied in `troubles`."""

    def __init__(self, base: Foundation, cluster: Cluster, cluster_id: str, wanted: Wanted) -> None:
        self._base, self._cluster, self._wanted = base, cluster, wanted
        self._cluster_id = cluster_id
        self.remarks: list[str] = []
        self.troubles: list[Trouble] = []

    def standings(self) -> list[Standing]:
        """All partitions of the wanted topics, here and in Kafka."""
        copies = {copy.row.id: copy for copy in self._copies()}
        rows = queries.partitions_of(self._base.catalog, [c.row for c in copies.values()])
        places = {(copies[p.topic_id].topic.name, p.partition): p for p in rows}
        places = {w: p for w, p in places.items() if w[1] < copies[p.topic_id].topic.partitions}
        found = []
        for where, bounds in self._cluster.bounds(places).items():
            p = places[where]
            copy = copies[p.topic_id]
            if isinstance(bounds, KafkaError):
                self.troubles.append(Trouble(f"{copy.row.name}-{p.partition}", str(bounds)))
            else:
                found.append(Standing(copy.row, p, bounds, copy.tombstones_ms))
        return found

    def _copies(self) -> list[_Copy]:
        names: Iterable[str] = self._wanted.names
        if self._wanted.pattern is not None:
            names = [name for name in self._cluster.names() if self._wanted.is_match(name)]
        found = self._cluster.topics(names)
        here = {t.name: t for t in queries.topics(self._base.catalog)}
        for name in sorted(self._missing(set(found), here)):
            self._tell(name, f"no such topic at {self._cluster.bootstrap}")
        new = {name for name in found if self._wanted.prefix + name not in here}
        settings = self._cluster.settings(new)
        settings |= self._cluster.settings(found.keys() - new, (POLICY, TOMBSTONES))
        copies = []
        for name, topic in found.items():
            try:
                copies.append(self._copy_of(sound(topic), sound(settings[name]), here))
            except LastwordError as error:
                self._tell(name, str(error))
        return copies

    def _tell(self, name: str, sentence: str) -> None:
        self.troubles.append(Trouble(self._wanted.prefix + name, sentence))

    def _missing(self, found: set[str], here: Mapping[str, TopicRow]) -> set[str]:
        """Topics that were asked for, or mirrored before, and are not in Kafka."""
        if self._wanted.pattern is None:
            return set(self._wanted.names) - found
        sources = {name: row.source for name, row in here.items() if row.source is not None}
        before = {
            source.topic
            for name, source in sources.items()
            if source.cluster == self._cluster_id and name == self._wanted.prefix + source.topic
        }
        return {name for name in before - found if self._wanted.is_match(name)}

    def _copy_of(
        self, topic: KafkaTopic, settings: Mapping[str, KafkaSetting], here: Mapping[str, TopicRow]
    ) -> _Copy:
        name = self._wanted.prefix + topic.name
        source = Source(self._cluster_id, topic.name, topic.id)
        row = here.get(name) or self._made(name, topic, settings, source)
        _refuse_other(row, source)
        if topic.partitions > row.partitions:
            topics.add_partitions(self._base.catalog, row, topic.partitions, self._base.clock())
            self.remarks.append(f"{name} has {topic.partitions} partitions now, as in Kafka")
            row = queries.topic_named(self._base.catalog, name)
        return _Copy(row, topic, tombstones_ms(settings))

    def _made(
        self, name: str, topic: KafkaTopic, settings: Mapping[str, KafkaSetting], source: Source
    ) -> TopicRow:
        taken = taken_over(settings, self._wanted.settings)
        row = topics.create_topic(
            self._base.catalog, name, topic.partitions, taken.settings, self._base.clock(), source
        )
        policy = row.config.policy or "empty"
        self.remarks.append(
            f"made {name}: {topic.partitions} partition(s), cleanup.policy={policy}"
        )
        self.remarks += [f"{name} does not take over {why}" for why in taken.left.values()]
        return row


def _refuse_other(row: TopicRow, source: Source) -> None:
    """Raise if the topic here is not the copy of that one."""
    if row.source == source:
        return
    if row.source is None:
        raise MirrorError(
            f"topic {row.name!r} is there already, and is no mirror; mirror under another name "
            "with --prefix, or delete it"
        )
    if (row.source.cluster, row.source.topic) != (source.cluster, source.topic):
        raise MirrorError(
            f"topic {row.name!r} mirrors {row.source.topic!r} of Kafka cluster {row.source.cluster}, "
            f"not {source.topic!r} of {source.cluster}; mirror it under another name with --prefix"
        )
    raise MirrorError(
        f"topic {source.topic!r} was deleted in Kafka and made anew: its id is {source.topic_id}, the "
        f"copy's is {row.source.topic_id}. Delete the copy to mirror the new one, or keep it with "
        "'lastword topics release' and mirror the new one with --prefix"
    )
