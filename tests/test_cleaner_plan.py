"""The plan: pure, so that every rule is tried in microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lastword.cleaner.plan import (
    ENTRY_BYTES,
    MOST_FILLINGS,
    Capacity,
    Clean,
    Decision,
    Nothing,
    as_if_rolled,
    decide,
    in_order,
    standing,
)
from lastword.cleaner.why import Why, partition_why
from lastword.config import topic_config
from lastword.model import PartitionRow, Segment, TopicRow
from lastword.passes import Horizon, PartitionState, Position

NOW = 1_000_000
ROOMY = Capacity(1 << 30)


def state(
    segments: list[tuple[int, int]],
    *,
    first_dirty: int = 0,
    log_start: int = 0,
    active_bytes: int = 0,
    horizons: list[Horizon] | None = None,
    held_from: int | None = None,
    row: dict[str, object] | None = None,
    **config: Any,
) -> PartitionState:
    """A log of segments of ten records, each (bytes, timestamp), and an active one of that size."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    closed = [
        Segment(10 * i, 10 * i + 9, 1, 10, size, 0, ms, ms, False)
        for i, (size, ms) in enumerate(segments)
    ]
    base = 10 * len(segments)
    log_end = base + (10 if active_bytes else 0)
    active_ms = NOW - 1 if active_bytes else None
    p = PartitionRow(1, 0, log_start, log_end, first_dirty, base, active_bytes, active_ms)
    active = [Segment(base, log_end - 1, 1, 10, active_bytes, 0, NOW - 1, NOW - 1, True)]
    return PartitionState(
        TopicRow(1, "t", 1, topic_config(settings)),
        replace(p, **(row or {})),  # type: ignore[arg-type]
        tuple(closed + (active if active_bytes else [])),
        tuple(horizons or ()),
        ()
        if held_from is None
        else (Position(held_from, "slow"), Position(held_from + 1, "less so")),
    )


def in_words(decision: Decision) -> str:
    return str(Why("t", (partition_why(decision, NOW),)))


def planned(s: PartitionState, **options: bool) -> Decision:
    return decide(s, NOW, ROOMY, **options)


def reason(s: PartitionState, **options: bool) -> str:
    decision = planned(s, **options)
    assert isinstance(decision, Nothing), decision
    return decision.reason


class TestSections:
    def test_the_active_segment_is_never_cleanable(self) -> None:
        at = standing(state([(5, 1), (5, 1)], active_bytes=100), NOW)
        assert (at.first_dirty, at.first_uncleanable) == (0, 20)
        assert at.cleanable_bytes == 10

    def test_a_partly_clean_segment_counts_on_both_sides(self) -> None:
        at = standing(state([(100, 1), (100, 1)], first_dirty=15), NOW)
        assert (at.clean_bytes, at.cleanable_bytes) == (200, 100)

    @pytest.mark.parametrize(("first_dirty", "log_start"), [(25, 0), (5, 10)])
    def test_an_impossible_first_dirty_is_reset(self, first_dirty: int, log_start: int) -> None:
        s = state([(5, 1), (5, 1)], first_dirty=first_dirty, log_start=log_start)
        assert standing(s, NOW).first_dirty == log_start

    def test_a_young_segment_ends_it_even_if_older_ones_follow(self) -> None:
        s = state([(5, 1), (5, NOW - 99), (5, 1)], min_compaction_lag_ms=100)
        at = standing(s, NOW)
        assert at.first_uncleanable == 10
        assert [x.base for x in at.cleanable] == [0]
        s = state([(5, 1), (5, NOW - 100), (5, 1)], min_compaction_lag_ms=100)
        assert standing(s, NOW).first_uncleanable == 30

    def test_a_partly_clean_segment_may_be_too_young(self) -> None:
        s = state([(5, NOW)], first_dirty=5, min_compaction_lag_ms=100)
        assert standing(s, NOW).cleanable == ()

    def test_log_start_beyond_the_active_base(self) -> None:
        s = state([(5, 1)], active_bytes=5, log_start=15, first_dirty=15)
        at = standing(s, NOW)
        assert (at.first_dirty, at.first_uncleanable, at.cleanable) == (15, 15, ())


class TestEligible:
    def test_the_ratio_must_be_strictly_greater(self) -> None:
        half = state([(50, 1), (50, 1)], first_dirty=10)
        assert "dirty ratio 0.50 is not above min.cleanable.dirty.ratio 0.5" in reason(half)
        more = state([(50, 1), (51, 1)], first_dirty=10)
        assert isinstance(planned(more), Clean)

    def test_zero_means_any_and_one_means_never(self) -> None:
        little = [(1_000_000, 1), (1, 1)]
        any_ = state(little, first_dirty=10, min_cleanable_dirty_ratio=0)
        assert isinstance(planned(any_), Clean)
        never = state([(50, 1)], min_cleanable_dirty_ratio=1)
        assert reason(never).endswith("and never will be")

    def test_how_much_is_missing(self) -> None:
        s = state([(1_000_000, 1), (250_000, 1)], first_dirty=10, min_cleanable_dirty_ratio=0.5)
        assert reason(s).endswith("; 750.0 kB more to go")

    def test_overdue_whatever_the_ratio(self) -> None:
        segments = [(1_000, 1), (1, NOW - 101)]
        settings: dict[str, Any] = {"max_compaction_lag_ms": 100, "min_cleanable_dirty_ratio": 1}
        plan = planned(state(segments, first_dirty=10, **settings))
        assert isinstance(plan, Clean)
        assert (plan.cause, plan.standing.delay_ms) == ("overdue by 1 ms", 1)
        segments[1] = (1, NOW - 100)
        assert isinstance(planned(state(segments, first_dirty=10, **settings)), Nothing)

    def test_force_ignores_the_ratio_but_not_the_lag(self) -> None:
        s = state([(50, 1), (1, 1)], first_dirty=10, min_cleanable_dirty_ratio=1)
        plan = planned(s, force=True)
        assert isinstance(plan, Clean)
        assert plan.cause == "forced, dirty ratio 0.02"
        young = state([(50, NOW - 1)], min_compaction_lag_ms=100)
        assert (
            "min.compaction.lag.ms 100 allows; the oldest of it may be cleaned in 99 ms"
            in reason(young, force=True)
        )

    def test_only_compacted_topics(self) -> None:
        assert reason(state([(5, 1)], cleanup_policy="delete")).startswith(
            "cleanup.policy is delete"
        )
        assert isinstance(planned(state([(5, 1)], cleanup_policy="compact,delete")), Clean)

    def test_what_is_there_to_say_when_nothing_is_dirty(self) -> None:
        assert reason(state([])) == "it is empty"
        assert reason(state([(5, 1)], first_dirty=10)) == "nothing was appended since the last pass"
        assert reason(state([], active_bytes=7)) == "all that is dirty is in the active segment"

    def test_a_claim_keeps_others_away_until_it_expires(self) -> None:
        claim = {"claim": "another", "claim_until_ms": NOW + 1}
        assert reason(state([(5, 1)], row=claim), force=True).startswith("a cleaner is at work")
        claim["claim_until_ms"] = NOW
        assert isinstance(planned(state([(5, 1)], row=claim)), Clean)

    def test_after_a_failure_it_waits_unless_it_is_asked_to_retry(self) -> None:
        failed = {"failures": 2, "failure": "bad file", "retry_after_ms": NOW + 1}
        assert "the last 2 passes failed" in reason(state([(5, 1)], row=failed))
        assert reason(state([(5, 1)], row=failed)).endswith(": bad file")
        assert isinstance(planned(state([(5, 1)], row=failed), retry=True), Clean)
        failed["retry_after_ms"] = NOW
        assert isinstance(planned(state([(5, 1)], row=failed)), Clean)


class TestTombstones:
    HORIZON = Horizon(pass_id=7, start=0, end=10, at_ms=NOW, first_tombstone=4)

    def test_past_their_horizon_they_make_it_eligible_without_new_data(self) -> None:
        plan = planned(state([(5, 1)], first_dirty=10, horizons=[self.HORIZON]))
        assert isinstance(plan, Clean)
        assert (plan.start, plan.end, plan.cause) == (10, 10, "tombstones past their horizon")
        assert in_words(plan) == "t-0: would be cleaned now: tombstones past their horizon"

    def test_they_do_not_take_along_what_is_not_dirty_enough(self) -> None:
        """Else each pass would set a new horizon, and that the next pass."""
        plan = planned(state([(50, 1), (5, 1)], first_dirty=10, horizons=[self.HORIZON]))
        assert isinstance(plan, Clean)
        assert (plan.start, plan.end) == (10, 10)

    def test_before_it_they_do_not(self) -> None:
        later = replace(self.HORIZON, at_ms=NOW + 1)
        s = state([(5, 1)], first_dirty=10, horizons=[later])
        assert isinstance(planned(s), Nothing)
        assert "wait for their delete horizon" in in_words(planned(s))

    def test_a_group_that_has_not_read_them_holds_them_back(self) -> None:
        for held_from, is_eligible in ((5, True), (4, False), (0, False)):
            s = state([(5, 1)], first_dirty=10, horizons=[self.HORIZON], held_from=held_from)
            assert isinstance(planned(s), Clean) == is_eligible
        said = in_words(planned(s))
        assert "consumer group 'slow' has read only up to offset 0 and holds later" in said
        assert "consumer group 'less so' has read only up to offset 1 and holds later" in said

    def test_a_group_that_has_read_all_that_is_left_holds_nothing_back(self) -> None:
        s = state([(5, 1)], first_dirty=10, horizons=[self.HORIZON], held_from=5)
        assert self.HORIZON.first_tombstone < 5 < self.HORIZON.end
        assert "holds later tombstones back" not in in_words(planned(s))

    def test_those_that_retention_has_dropped_do_not_count(self) -> None:
        later = replace(self.HORIZON, at_ms=NOW + 1)
        s = state([(5, 1)], first_dirty=10, horizons=[later], log_start=10)
        assert planned(s).standing.waiting == ()
        assert "delete horizon" not in in_words(planned(s))


class TestHowFar:
    def test_all_that_is_cleanable_if_memory_allows(self) -> None:
        plan = planned(state([(5, 1)] * 4, active_bytes=1))
        assert isinstance(plan, Clean)
        assert (plan.start, plan.end, plan.shards) == (0, 40, 1)

    def test_oldest_segments_first_and_at_least_one(self) -> None:
        s = state([(5, 1)] * 4)
        segments = tuple(replace(x, records=10 * MOST_FILLINGS) for x in s.segments)
        for entries, end in ((9, 10), (10, 10), (19, 10), (20, 20), (39, 30), (40, 40)):
            for maps in (1, 8):  # more maps do not mean more memory, nor less
                capacity = Capacity(entries * ENTRY_BYTES, maps)
                plan = decide(replace(s, segments=segments), NOW, capacity)
                assert isinstance(plan, Clean)
                assert plan.end == end, entries

    def test_more_records_more_shards(self) -> None:
        s = state([(5, 1)])
        big = tuple(replace(x, records=1_000) for x in s.segments)
        plan = decide(replace(s, segments=big), NOW, Capacity(100 * ENTRY_BYTES))
        assert isinstance(plan, Clean)
        assert plan.shards == 2  # 1,000 records, of 125 keys if each comes 8 times

    def test_a_horizon_is_set_and_cannot_overflow(self) -> None:
        plan = planned(state([(5, 1)], delete_retention_ms=2**63 - 1))
        assert isinstance(plan, Clean)
        assert plan.horizon_ms == 2**63 - 1

    def test_as_if_the_active_segment_were_rolled(self) -> None:
        plan = planned(as_if_rolled(state([(5, 1)], active_bytes=5)), force=True)
        assert isinstance(plan, Clean)
        assert plan.end == 20


def test_the_most_overdue_comes_first_then_the_dirtiest() -> None:
    lag: dict[str, Any] = {"max_compaction_lag_ms": 100, "min_cleanable_dirty_ratio": 0}
    dirty = planned(state([(50, 1), (50, NOW)], first_dirty=10, **lag))
    dirtier = planned(state([(10, 1), (50, NOW)], first_dirty=10, **lag))
    overdue = planned(state([(99, 1), (1, NOW - 200)], first_dirty=10, **lag))
    more_overdue = planned(state([(99, 1), (1, NOW - 300)], first_dirty=10, **lag))
    plans = [dirty, overdue, dirtier, more_overdue]
    assert in_order(p for p in plans if isinstance(p, Clean)) == [
        more_overdue, overdue, dirtier, dirty,
    ]  # fmt: skip


class TestWhy:
    def test_sentences_with_numbers_and_the_setting_to_change(self) -> None:
        s = state([(64_000_000, 1), (20_000_000, 1)], first_dirty=10, active_bytes=12_000_000)
        said = in_words(planned(s))
        assert said.splitlines() == [
            "t-0: would not be cleaned now: dirty ratio 0.24 is not above "
            "min.cleanable.dirty.ratio 0.5; 44.0 MB more to go",
            "  the newest 12.0 MB are in the active segment, which rolls at 268.4 MB "
            "(segment.bytes) or at 1970-01-08 00:16:39.999Z (segment.ms); force would roll it",
        ]

    def test_what_rolls_the_active_segment_first(self) -> None:
        s = state([(5, 1)], first_dirty=10, active_bytes=5, max_compaction_lag_ms=60_000)
        assert "or at 1970-01-01 00:17:39.999Z (max.compaction.lag.ms)" in in_words(planned(s))

    def test_what_would_be_cleaned(self) -> None:
        s = state([(5, 1), (5, NOW)], min_compaction_lag_ms=100)
        said = in_words(planned(s))
        assert "would be cleaned now: dirty ratio 1.00 above 0.5; offsets 0 to 9" in said
        assert (
            "offsets from 10 on are protected by min.compaction.lag.ms 100, the next for 100 ms"
            in said
        )
