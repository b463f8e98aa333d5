"""The same appends, tombstones, rolls and passes on a real Kafka broker and here, record by record.

Hypothesis draws the scenarios: each is the life of one partition in three phases, and a phase ends with
a pass. All of them are played at once, as partitions of a few topics with different settings, so that
one broker serves many. Time is in the records: segments roll because the next record is more than
`segment.ms` younger, on both sides by the same rule. `LASTWORD_SEED` repeats a run.

What may differ is in docs/kafka-parity.md. Of that table, two rows show here: tombstones past their
horizon go without new data, where Kafka waits for some, which is allowed for; and our cleaner rolls
quiet segments, which is switched off.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from broker.client import Kafka, Message
from lastword.catalog import queries
from lastword.cleaner.choose import Asked
from lastword.cleaner.run import Cleaner
from lastword.clock import system_clock
from lastword.errors import InvalidRecordError
from lastword.model import Record
from lastword.opening import open_store
from lastword.partitioner import partition_for
from lastword.store import Store
from lastword.testing import InProcess
from lastword.topic import Topic
from tests.soak import times

SCENARIOS, PHASES = times(120), 3
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NEVER = 10 * DAY_MS  # no tombstone goes so soon
FILLER = b"filler"

COMPACT = {"cleanup.policy": "compact", "segment.ms": DAY_MS, "min.cleanable.dirty.ratio": 0}
BOTH = COMPACT | {"cleanup.policy": "compact,delete"}


@dataclass(frozen=True)
class Kind:
    """A topic's settings; its delete.retention.ms in each phase."""

    config: Mapping[str, object]
    delete_retention_ms: tuple[int, int, int]


KINDS = [
    Kind(COMPACT, (0, 0, 0)),
    Kind(COMPACT, (NEVER, NEVER, NEVER)),
    Kind(COMPACT, (0, NEVER, 0)),
    Kind(COMPACT, (NEVER, 0, 0)),
    Kind(COMPACT | {"min.compaction.lag.ms": 371 * HOUR_MS}, (0, 0, 0)),
    Kind(COMPACT | {"min.compaction.lag.ms": 491 * HOUR_MS}, (0, NEVER, 0)),
    Kind(BOTH | {"retention.ms": 501 * HOUR_MS}, (0, 0, 0)),
    Kind(BOTH | {"retention.ms": 619 * HOUR_MS}, (NEVER, 0, NEVER)),
]


@dataclass(frozen=True)
class Step:
    """An append: how many hours after the last one, and (key, value, seconds, header) of each record."""

    hours: int
    records: tuple[tuple[bytes, bytes | None, int, bytes | None], ...]


Scenario = tuple[tuple[Step, ...], ...]  # phases of steps

keys = st.sampled_from([b"", b"a", b"b", b"c", b"d", "é".encode(), b"\x00\xff"])
values = st.none() | st.binary(max_size=4)
record = st.tuples(keys, values, st.integers(0, 900), st.none() | st.binary(max_size=2))
# The next append is in the same segment, or rolls it. Nothing depends on the second in which it is
# made: records are an even number of hours old, and some minutes, while lags and retention are odd.
step = st.builds(
    Step, st.sampled_from([0, 0, 30, 38]), st.lists(record, min_size=1, max_size=5).map(tuple)
)
# At the end of a phase most logs are rolled, by a record of a key that no other has.
filler = st.sampled_from([True, True, True, False])


@st.composite
def phases(draw: st.DrawFn) -> tuple[Step, ...]:
    steps = draw(st.lists(step, max_size=4))
    if draw(filler):
        steps.append(Step(30, ((FILLER, b"", 0, None),)))
    return tuple(steps)


scenarios = st.tuples(*[phases()] * PHASES)


def drawn(count: int, from_seed: int) -> list[Scenario]:
    """Scenarios by Hypothesis, to be played together."""
    found: list[Scenario] = []

    @seed(from_seed)
    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(scenarios)
    def collect(scenario: Scenario) -> None:
        found.append(scenario)

    while len(found) < count:
        collect()
        from_seed += 1
    return found[:count]


class Played:
    """The scenarios of one topic on both sides."""

    def __init__(self, kafka: Kafka, store: Store, kind: Kind, its: Sequence[Scenario]) -> None:
        self.kafka, self.kind, self.scenarios = kafka, kind, its
        held = {"min.cleanable.dirty.ratio": 1}  # Kafka's cleaner waits for the end of the phase
        self.name = kafka.create(len(its), {**kind.config, **held})
        self.topic: Topic = store.create_topic(self.name, len(its), kind.config)
        self.clock_ms = [system_clock() - 720 * HOUR_MS] * len(its)
        self.firsts: list[list[int]] = []  # the first dirty offsets after each phase

    def append(self, phase: int, number: int) -> bool:
        """The step with this number of every scenario, if it has one; whether any has."""
        ours, theirs = [], []
        for partition, scenario in enumerate(self.scenarios):
            if number >= len(scenario[phase]):
                continue
            its = scenario[phase][number]
            self.clock_ms[partition] += its.hours * HOUR_MS
            for key, value, seconds, header in its.records:
                at_ms = self.clock_ms[partition] + 1000 * seconds
                headers = () if header is None else (("h", header), ("none", None))
                ours.append(Record(key, value, at_ms, headers, partition))
                theirs.append((partition, Message(key, value, at_ms, headers)))
        self.topic.append(ours)
        self.kafka.produce_to(self.name, theirs)
        return bool(ours)

    def alter(self, phase: int) -> None:
        changes = {"delete.retention.ms": self.kind.delete_retention_ms[phase]}
        self.topic.alter(changes)
        self.kafka.alter(self.name, changes)

    def hold(self, ratio: int) -> None:
        self.kafka.alter(self.name, {"min.cleanable.dirty.ratio": ratio})

    def first_dirty(self) -> list[int]:
        rows = queries.partitions(self.topic._base.catalog, self.topic.row)
        return [max(row.first_dirty, row.log_start) for row in rows]

    def compare(self, phase: int) -> None:
        """Every partition, record by record."""
        self.firsts.append(self.first_dirty())
        theirs, bounds = self.kafka.read(self.name), self.kafka.ends(self.name)
        checkpoints, now = self.kafka.checkpoints(), self.firsts[phase]
        offsets = self.topic.offsets()
        for number, scenario in enumerate(self.scenarios):
            told = f"{self.name}-{number}, phase {phase}: {self.kind}\n{scenario}"
            assert offsets[number] == bounds[number], told
            log_start, _ = bounds[number]
            assert now[number] == max(checkpoints.get((self.name, number), 0), log_start), told
            ours = [
                Message(r.key, r.value, r.timestamp, r.headers, r.offset)  # type: ignore[arg-type]
                for r in self.topic.read(number)
            ]
            expected = theirs[number]
            if phase and now[number] == self.firsts[phase - 1][number]:
                expected = [m for m in expected if not self.has_expired(m, number)]
            assert ours == expected, told

    def has_expired(self, message: Message, number: int) -> bool:
        """Whether it is a tombstone that Kafka would drop, if only there were new data."""
        covered = (i for i, first in enumerate(self.firsts) if message.offset < first[number])
        phase = next(covered, len(self.firsts))
        return (
            message.value is None
            and phase < len(self.firsts) - 1
            and self.kind.delete_retention_ms[phase] == 0
        )


def test_random_logs(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> None:
    from_seed = int(os.environ.get("LASTWORD_SEED") or random.randrange(1 << 32))
    print(f"LASTWORD_SEED={from_seed}")
    everything = drawn(SCENARIOS, from_seed)
    share = len(everything) // len(KINDS)
    with open_store(str(tmp_path_factory.mktemp("store"))) as store:
        played = [
            Played(kafka, store, kind, everything[i * share : (i + 1) * share])
            for i, kind in enumerate(KINDS)
        ]
        for phase in range(PHASES):
            for its in played:
                its.alter(phase)
            number = 0
            while sum(its.append(phase, number) for its in played):
                number += 1
            _clean(store, played)
            _let_kafka_clean(kafka, played)
            for its in played:
                its.compare(phase)


def _clean(store: Store, played: Sequence[Played]) -> None:
    """A round, without its beginning: ours rolls quiet segments, which Kafka does not."""
    with pytest.MonkeyPatch.context() as patch, Cleaner(store.base, InProcess()) as cleaner:
        patch.setattr("lastword.cleaner.run.roll", lambda *_: None)
        for done in cleaner.round([its.topic.row for its in played], Asked()).passes:
            assert done.error is None, done.error


def _let_kafka_clean(kafka: Kafka, played: Sequence[Played]) -> None:
    """Until its cleaner has come as far as ours."""
    for its in played:
        its.hold(0)
    expected = {
        (its.name, number): offset
        for its in played
        for number, offset in enumerate(its.first_dirty())
        if offset > its.topic.offsets()[number][0]
    }
    kafka.wait_until_cleaned(expected)
    for its in played:
        its.hold(1)


def test_null_keys_are_refused_by_both(kafka: Kafka, local: Store) -> None:
    name = kafka.create(1, {"cleanup.policy": "compact"})
    topic = local.create_topic(name)
    assert [error for *_, error in kafka.produce(name, [Message(None, b"x")])] == ["INVALID_RECORD"]
    with pytest.raises(InvalidRecordError):
        topic.append([(None, "x")])
    assert topic.offsets() == kafka.ends(name) == {0: (0, 0)}


def test_keys_land_where_other_producers_put_them(kafka: Kafka) -> None:
    partitions = 17
    name = kafka.create(partitions)
    random_ = random.Random(11)
    keys_ = [random_.randbytes(random_.randrange(0, 40)) for _ in range(10_000)]
    messages = [Message(key, b"%d" % i) for i, key in enumerate(keys_)]
    kafka.produce(name, messages, partitioner="murmur2_random")
    found = {m.value: number for number, its in kafka.read(name).items() for m in its}
    ours = partition_for(pa.array(keys_, pa.binary()), partitions)
    # librdkafka's murmur2_random takes an empty key for none, and sends it anywhere; Java's does not.
    wrong = [i for i, k in enumerate(keys_) if k and found[b"%d" % i] != ours[i]]
    assert wrong == []
