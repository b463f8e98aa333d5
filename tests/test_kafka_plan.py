"""What a mirror copies, and what it refuses to: without Kafka and without Spark."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lastword.config import topic_config
from lastword.kafka.cluster import Bounds, KafkaSetting
from lastword.kafka.plan import Standing, Times, judged, plan, too_late
from lastword.kafka.settings import handed_over, taken_over
from lastword.model import FileFacts, PartitionRow, StagedFile, TopicRow
from lastword.store import Store

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
TOPIC = TopicRow(1, "t", 9, topic_config({}))


def standing(
    start: int, end: int, log_end: int = 0, mirrored_ms: int | None = NOW_MS, number: int = 0
) -> Standing:
    """A partition that has [start, end) in Kafka, and is copied up to log end."""
    row = PartitionRow(1, number, 0, log_end, 0, 0, 0, None, mirrored_ms=mirrored_ms)
    return Standing(TOPIC, row, Bounds(start, end), HOUR_MS)


def copies(*standings: Standing) -> list[tuple[int, int, int]]:
    return [(c.position, c.start, c.end) for c in plan(standings, NOW_MS, 1000).copies]


def staged(records: int) -> list[StagedFile]:
    facts = FileFacts("p", records, records - 1, 1, 0, 0, 0, 0, 0)
    return [StagedFile(1, 0, facts)]


def test_from_log_end_to_kafkas() -> None:
    assert copies(standing(0, 10, log_end=4)) == [(4, 4, 10)]
    assert copies(standing(3, 10, log_end=4)) == [(4, 4, 10)]
    assert copies(standing(0, 4, log_end=4)) == []


def test_the_first_copy_begins_where_kafka_does() -> None:
    assert copies(standing(7, 10, mirrored_ms=None)) == [(0, 7, 10)]
    assert copies(standing(7, 7, mirrored_ms=None)) == [(0, 7, 7)]
    assert copies(standing(0, 0, mirrored_ms=None)) == []


def test_losses() -> None:
    lost = standing(8, 10, log_end=4)
    planned = plan([lost, standing(0, 3, number=1)], NOW_MS, 1000)
    assert [t.where for t in planned.troubles] == ["t-0"]
    assert [c.partition for c in planned.copies] == [1]  # the other one is copied
    (allowed,) = plan([lost], NOW_MS, 1000, allow_loss=True).copies
    assert (allowed.start, allowed.may_miss_tombstones) == (8, True)
    cut = plan([standing(0, 3, log_end=4)], NOW_MS, 1000, allow_loss=True)
    assert cut.copies == ()
    assert "Kafka has lost records which the copy has" in cut.troubles[0].sentence


def test_late_copies_may_miss_tombstones() -> None:
    def is_taken(s: Standing, records: int, read_ms: int = NOW_MS) -> bool:
        (copy,) = plan([s], NOW_MS, 1000).copies
        return not judged(copy, s, staged(records), Times(NOW_MS, read_ms)).may_miss_tombstones

    late = standing(0, 10, log_end=4, mirrored_ms=NOW_MS - HOUR_MS - 1)
    assert is_taken(late, 6)  # nothing is missing at all
    assert not is_taken(late, 5)
    assert "was complete 1 h ago" in too_late(late, Times(NOW_MS, NOW_MS)).sentence
    in_time = standing(0, 10, log_end=4, mirrored_ms=NOW_MS - HOUR_MS)
    assert is_taken(in_time, 5)
    assert not is_taken(in_time, 5, read_ms=NOW_MS + 1)  # while it was read
    new = standing(0, 10, mirrored_ms=None)
    assert is_taken(new, 5, read_ms=NOW_MS + HOUR_MS)
    assert not is_taken(new, 5, read_ms=NOW_MS + HOUR_MS + 1)


def test_a_copy_is_complete_when_it_has_all() -> None:
    before = NOW_MS - 5
    part = plan([standing(0, 100, 4, before)], NOW_MS, 10).copies[0]
    assert (part.end, part.mirrored_ms) == (14, before)
    whole = plan([standing(0, 100, 4, before)], NOW_MS, 96).copies[0]
    assert (whole.end, whole.mirrored_ms) == (100, NOW_MS)


bounds = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))


@given(st.lists(bounds, max_size=6), st.integers(1, 60))
def test_shares(partitions: list[tuple[int, int, int]], most: int) -> None:
    standings = [
        standing(min(a, b), max(a, b), log_end, number=i)
        for i, (a, b, log_end) in enumerate(partitions)
    ]
    planned = plan(standings, NOW_MS, most)
    assert len(planned.copies) + len(planned.troubles) == sum(
        s.kafka.end != s.row.log_end for s in standings
    )
    for copy in planned.copies:
        its = standings[copy.partition]
        assert its.kafka.start <= copy.start == copy.position < copy.end <= its.kafka.end
    copied = sum(c.end - c.start for c in planned.copies)
    assert copied <= most + len(planned.copies)  # each one gets on
    lag = sum(standings[c.partition].lag for c in planned.copies)
    assert lag > most or copied == lag


def kafka_settings(**settings: tuple[str, bool]) -> dict[str, KafkaSetting]:
    return {k.replace("_", "."): KafkaSetting(*v) for k, v in settings.items()}


def test_settings_from_kafka() -> None:
    theirs = kafka_settings(
        cleanup_policy=("delete", True), segment_bytes=("1073741824", True),
        retention_ms=("5", False), segment_ms=("0", False), compression_type=("producer", False),
        min_insync_replicas=("2", False),
    )  # fmt: skip
    taken = taken_over(theirs, {})
    assert taken.settings == {"cleanup.policy": "delete", "retention.ms": "5"}
    assert list(taken.left) == ["segment.ms"]  # out of our bounds
    instead = taken_over(theirs, {"retention.ms": "-1", "segment.ms": "7"})
    assert instead.settings["retention.ms"] == "-1"
    assert instead.left == {}


def test_settings_to_kafka(local: Store) -> None:
    local.alter({"log.retention.ms": 77})
    topic = local.create_topic("t", config={"segment.ms": 5, "min.compaction.lag.ms": 0})
    settings = handed_over(list(topic.describe().settings))
    assert settings == {"cleanup.policy": "compact", "segment.ms": "5", "retention.ms": "77"}
