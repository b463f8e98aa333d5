"""What is drawn: the anatomy of a partition, and the growth of a topic."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import pytest

from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.plan import Decision
from lastword.model import Segment
from lastword.passes import Pass
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from lastword.ui.anatomy import Point, Scale, picture
from lastword.ui.growth import growth
from tests.notation import clean, write


def decision_of(topic: Topic) -> Decision:
    (found,) = decisions_for(topic._base, [topic.row], Asked())
    return found


class TestAnatomy:
    def test_sections_are_true_to_scale(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"min.compaction.lag.ms": 1_000})
        write(topic, "a=1 a=2 a=3 b=∅")
        clock.advance(2_000)
        clean(topic)
        write(topic, "c=1 c=2")
        clock.advance(2_000)
        write(topic, "d=1 d=2 | e=1 e=2*")
        drawn = picture(decision_of(topic))
        assert [(b.section, b.x, b.width, b.records) for b in drawn.bars] == [
            ("clean", 0, 40, 2),
            ("dirty", 40, 20, 2),
            ("protected", 60, 20, 2),
            ("active", 80, 20, 2),
        ]
        assert [b.height for b in drawn.bars] == [30, 60, 60, 60]  # half of the first is gone
        assert [(p.name, p.offset, p.x) for p in drawn.points] == [
            ("log start", 0, 0),
            ("delete retention point", 3, 30),  # where the tombstone waits
            ("first dirty", 4, 40),
            ("first uncleanable", 6, 60),
            ("log end", 10, 100),
        ]
        clock.advance(90_000_000)
        points = [p.name for p in picture(decision_of(topic)).points]
        assert "delete retention point · first dirty" in points

    def test_log_start_in_the_middle_of_a_segment(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "delete"})
        write(topic, "a=1 b=1 c=1 d=1 | e=1 f=1*")
        topic.delete_records(0, before=2)
        first, last = picture(decision_of(topic)).bars
        assert (first.section, last.section) == ("kept", "active")  # where nothing is compacted
        assert (first.first, first.start, first.end, first.width) == (0, 2, 4, 50)
        assert (last.start, last.end, last.x) == (4, 6, 50)

    def test_by_bytes(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1 | b=1*")
        topic.append([("c", os.urandom(50_000))])
        drawn = picture(decision_of(topic), Scale.BYTES)
        assert [b.section for b in drawn.bars] == ["dirty", "active"]
        assert drawn.bars[1].width > 90
        assert sum(b.width for b in drawn.bars) == pytest.approx(100)

    def test_an_empty_partition(self, local: Store, clock: ManualClock) -> None:
        drawn = picture(decision_of(local.create_topic("t")))
        assert drawn.bars == ()
        assert {p.offset for p in drawn.points} == {0}

    def test_many_narrow_segments_are_joined(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        for n in range(40):
            write(topic, f"k{n}=1")
        topic.append([(f"k{n}", "2") for n in range(40_000)])
        drawn = picture(decision_of(topic))
        assert len(drawn.bars) == 2
        assert (drawn.bars[0].segments, drawn.bars[0].records) == (40, 40)

    def test_wide_segments_are_not(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1")
        for _ in range(2):
            topic.append([(f"k{n}", "1") for n in range(5_000)])
            topic.roll()
        drawn = picture(decision_of(topic))
        assert [b.segments for b in drawn.bars] == [1, 1, 1]

    def test_log_start_is_the_least(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"cleanup.policy": "compact,delete"})
        write(topic, "a=1 a=∅ b=1")
        clean(topic)
        topic.delete_records(0, before=2)
        points = picture(decision_of(topic)).points
        assert min(p.offset for p in points) == 2

    def test_labels_do_not_overlap(self, local: Store, clock: ManualClock) -> None:
        topic = local.create_topic("t", config={"min.compaction.lag.ms": 1})
        write(topic, "a=1 b=∅")
        clock.advance(2)
        clean(topic)
        write(topic, "c=1 | d=1*")
        points = picture(decision_of(topic)).points
        assert len(points) > 3
        for row in {p.row for p in points}:
            extents = sorted(_extent(p) for p in points if p.row == row)
            assert all(end <= start for (_, end), (start, _) in pairwise(extents))


def _extent(point: Point) -> tuple[float, float]:
    width = 0.6 * len(f"{point.name} {point.offset}")  # percent, of a page of 1,000 px
    return (point.x - width, point.x) if point.is_right else (point.x, point.x + width)


END = 100  # offset, up to which passes have covered


def a_pass(at_ms: int, bytes_in: int, bytes_out: int, **values: Any) -> Pass:
    return Pass("t", values.pop("partition", 0), "", "", at_ms, 0, END, 0, bytes_in=bytes_in, bytes_out=bytes_out, **values)  # fmt: skip


def log(*sizes: int) -> dict[int, list[Segment]]:
    """Partitions of these sizes, which passes have covered, and to which records come until now."""
    return {n: [segment(0, size, max_ms=1_000)] for n, size in enumerate(sizes)}


def segment(base: int, size: int, first_ms: int = 0, max_ms: int = 0) -> Segment:
    return Segment(base, base + 9, 1, 10, size, 0, first_ms, max_ms, is_active=base >= END)


class TestGrowth:
    def test_a_saw_with_compaction_a_slope_without(self) -> None:
        passes = [a_pass(10, 100, 20), a_pass(20, 70, 30)]
        found = growth(passes, log(50), since_ms=0, now_ms=30)
        assert found.at_ms == (0, 0, 10, 10, 20, 20, 30, 30)
        assert found.compacted == (0, 0, 100, 20, 70, 30, 50, 50)
        assert found.uncompacted == (0, 0, 100, 100, 150, 150, 170, 170)
        assert found.saved == pytest.approx(1 - 50 / 170)

    def test_partitions_are_added_up(self) -> None:
        passes = [
            a_pass(10, 100, 20),
            a_pass(20, 40, 40, partition=1),
            a_pass(15, 9, 0, error="no"),
        ]
        found = growth(passes, log(20, 40), since_ms=0, now_ms=20)
        assert found.compacted == (0, 0, 120, 40, 60, 60)  # the other one had 20 of 40 half-way
        assert found.uncompacted[-1] == 140

    def test_what_retention_drops_is_not_saved_by_compaction(self) -> None:
        found = growth([a_pass(10, 5_000, 5_000)], log(50), since_ms=0, now_ms=20)
        assert (found.uncompacted[-1], found.saved) == (50, 0)
        passes = [a_pass(10, 5_000, 5_000), a_pass(15, 100, 100)]
        assert growth(passes, log(100), since_ms=0, now_ms=20).uncompacted[-1] == 100

    def test_retention_drops_as_large_a_part_with_compaction_as_without(self) -> None:
        found = growth([a_pass(10, 1_000, 100)], log(50), since_ms=0, now_ms=20)
        assert found.uncompacted[-1] == 500
        assert found.saved == pytest.approx(0.9)
        assert growth([a_pass(10, 1_000, 100)], log(0), since_ms=0, now_ms=20).uncompacted[-1] == 0

    def test_what_the_last_pass_left_alone_did_not_come_all_at_once(self) -> None:
        rest = [
            segment(END, 60, first_ms=0, max_ms=20),
            segment(END + 10, 5, first_ms=15, max_ms=18),
        ]
        found = growth([a_pass(10, 100, 20)], {0: [segment(0, 20), *rest]}, since_ms=0, now_ms=20)
        assert found.at_ms == (0, 0, 10, 10, 20, 20)
        assert found.compacted == (0, 0, 130, 50, 85, 85)  # half of the 60 was there at the pass
        assert found.uncompacted == (0, 0, 130, 130, 165, 165)

    def test_many_passes_are_thinned(self) -> None:
        passes = [a_pass(10 * n, 100, 20) for n in range(1, 1_000)]
        found = growth(passes, log(20), since_ms=0, now_ms=10_000)
        assert len(found.at_ms) <= 250
        assert (found.at_ms[0], found.at_ms[-1]) == (0, 10_000)
        assert found.uncompacted[-1] == 100 + 998 * 80

    def test_only_the_last_passes_are_known(self) -> None:
        passes = [a_pass(10, 100, 20), a_pass(20, 50, 40, partition=1)]
        found = growth(passes, log(60, 40), since_ms=None, now_ms=30)
        assert found.at_ms == (10, 10, 20, 20, 30, 30)
        assert found.compacted == (150, 70, 90, 80, 100, 100)  # the other one had 50 before

    def test_to_a_quiet_topic_nothing_came_since_its_newest_record(self) -> None:
        passes = [a_pass(10, 100, 20)]
        found = growth(passes, {0: [segment(0, 60, max_ms=15)]}, since_ms=0, now_ms=30)
        assert found.at_ms == (0, 0, 10, 10, 15, 15, 30, 30)
        assert found.compacted == (0, 0, 100, 20, 60, 60, 60, 60)
        quiet = {0: [segment(0, 20, max_ms=5)]}
        assert growth(passes, quiet, 0, 30).compacted == (0, 0, 100, 20, 20, 20)

    def test_a_topic_that_was_never_cleaned(self) -> None:
        found = growth([], log(7), since_ms=0, now_ms=5)
        assert (found.compacted, found.uncompacted, found.saved) == ((0, 0, 7, 7), (0, 0, 7, 7), 0)

    @pytest.mark.parametrize(
        ("most", "ticks"),
        [
            (0, ()),
            (1, (1,)),
            (3, (1, 2, 3)),
            (19, (5, 10, 15)),
            (20, (10, 20)),
            (39, (10, 20, 30)),
            (303_400, (100_000, 200_000, 300_000)),
            (999_999, (200_000, 400_000, 600_000, 800_000)),
        ],
    )
    def test_its_axis_has_round_sizes(self, most: int, ticks: tuple[int, ...]) -> None:
        assert growth([], log(most), since_ms=0, now_ms=5).ticks == ticks
