"""What a query asks for, from its options: which partitions, from where to where, in which portions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastword.errors import InvalidArgumentError
from lastword.model import valid_group_name
from lastword.spark.options import OPTIONS, Options

EARLIEST, LATEST = -2, -1

TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Subscription:
    """Which topics: by name, by a pattern, or some of their partitions; just one of these."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class Bound:
    """Where to start or end: at an offset or a time, the same everywhere or by partition."""

    at: int | Mapping[TopicPartition, int]
    is_time: bool = False


FROM_EARLIEST, TO_LATEST = Bound(EARLIEST), Bound(LATEST)


@dataclass(frozen=True)
class Reading:
    """What a query wants to read."""

    store: str | None
    subscription: Subscription
    is_latest: bool = False
    start: Bound = FROM_EARLIEST
    end: Bound = TO_LATEST
    no_match_is_latest: bool = False
    min_partitions: int | None = None
    max_records: int | None = None
    is_ordered: bool = False
    fail_on_data_loss: bool = True
    group: str | None = None  # a stream's, which commits what it has done
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_delay_ms: int = 0


@dataclass(frozen=True)
class Writing:
    """Where a query wants to write."""

    store: str | None
    topic: str | None = None
    writer: tuple[str, int] | None = None


def batch_reading(options: Options) -> Reading:
    """What a batch query wants to read."""
    start = _bound(options, "starting") or FROM_EARLIEST
    end = _bound(options, "ending") or TO_LATEST
    _refuse_offset(start, LATEST, "startingOffsets: a batch cannot start at latest (-1)")
    _refuse_offset(end, EARLIEST, "endingOffsets: a batch cannot end at earliest (-2)")
    _refuse_contradiction(start, end)
    view = (options["view"] or "log").lower()
    if view not in ("log", "latest"):
        raise InvalidArgumentError(f"option view is log or latest, not {view!r}")
    if view == "latest":
        for name in ("starting", "ending"):
            if _bound(options, name) is not None:
                raise InvalidArgumentError(
                    f"view=latest is the state of now: leave the {name} offsets out, or read the log"
                )
    return Reading(**_common(options), start=start, end=end, is_latest=view == "latest")


def stream_reading(options: Options) -> Reading:
    """What a streaming query wants to read."""
    for option in OPTIONS:
        if option.name.startswith("ending") and options[option.name] is not None:
            raise InvalidArgumentError(f"a stream has no end: leave {option.name} out")
    if (options["view"] or "log").lower() != "log":
        raise InvalidArgumentError("a stream reads the log: view=latest is for batch queries")
    group = options["kafka.group.id"]
    most = options.number("maxOffsetsPerTrigger", least=1)
    fewest = options.number("minOffsetsPerTrigger", least=1)
    if most is not None and fewest is not None and fewest > most:
        raise InvalidArgumentError(
            f"minOffsetsPerTrigger {fewest} is more than maxOffsetsPerTrigger {most}"
        )
    return Reading(
        **_common(options),
        start=_bound(options, "starting") or Bound(LATEST),
        group=None if group is None else valid_group_name(group),
        max_per_trigger=most,
        min_per_trigger=fewest,
        max_delay_ms=options.duration_ms("maxTriggerDelay", "15m"),
    )


def writing(options: Options) -> Writing:
    """Where a query wants to write."""
    name, version = options["writerId"], options.number("writerVersion")
    if (name is None) != (version is None):
        raise InvalidArgumentError("writerId and writerVersion go together: give both, or none")
    writer = None if name is None or version is None else (name, version)
    return Writing(options.store, options["topic"], writer)


def _common(options: Options) -> dict[str, Any]:
    strategy = options["startingOffsetsByTimestampStrategy"] or "error"
    if strategy.lower() not in ("error", "latest"):
        raise InvalidArgumentError(
            f"option startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}"
        )
    is_ordered = options.flag("ordered", False)
    for name in ("minPartitions", "maxRecordsPerPartition"):
        if is_ordered and options[name] is not None:
            raise InvalidArgumentError(
                f"ordered=true is a task for each partition: leave {name} out"
            )
    return {
        "store": options.store,
        "subscription": subscription(options),
        "no_match_is_latest": strategy.lower() == "latest",
        "min_partitions": options.number("minPartitions", least=1),
        "max_records": options.number("maxRecordsPerPartition", least=1),
        "is_ordered": is_ordered,
        "fail_on_data_loss": options.flag("failOnDataLoss", True),
    }


def subscription(options: Options) -> Subscription:
    """The topics that are asked for."""
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if options[name] is not None]
    if len(given) != 1:
        raise InvalidArgumentError(
            f"give one of {', '.join(names)}: {' and '.join(given) or 'none'} was given"
        )
    if given == ["subscribePattern"]:
        pattern = options["subscribePattern"] or ""
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgumentError(
                f"option subscribePattern {pattern!r} is no regular expression: {error}"
            ) from None
        return Subscription(pattern=pattern)
    if given == ["assign"]:
        return Subscription(assigned=_assigned(options["assign"] or ""))
    topics = options.words("subscribe")
    if not topics:
        raise InvalidArgumentError("option subscribe names no topic")
    return Subscription(names=tuple(dict.fromkeys(topics)))


def offsets_from(text: str, name: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23}}` as a flat mapping."""
    try:
        found = {
            (topic, int(number)): offset
            for topic, offsets in json.loads(text).items()
            for number, offset in offsets.items()
        }
    except (ValueError, AttributeError):
        found = {}
    if not found or not all(type(offset) is int for offset in found.values()):
        raise InvalidArgumentError(
            f'option {name} is a word or JSON like {{"topic": {{"0": 23, "1": -2}}}}, not {text!r}'
        )
    return found


def _assigned(text: str) -> frozenset[TopicPartition]:
    try:
        found = [(topic, n) for topic, numbers in json.loads(text).items() for n in numbers]
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found or not all(type(number) is int for _, number in found):
        raise InvalidArgumentError(f'option assign is JSON like {{"topic": [0, 1]}}, not {text!r}')
    return frozenset(found)


def _bound(options: Options, side: str) -> Bound | None:
    """Where to start, or to end, if an option says so; the first of three counts."""
    if (everywhere := options.number(f"{side}Timestamp")) is not None:
        return Bound(everywhere, is_time=True)
    name = f"{side}OffsetsByTimestamp"
    if (times := options[name]) is not None:
        return Bound(offsets_from(times, name), is_time=True)
    name = f"{side}Offsets"
    match (options[name] or "").strip().lower():
        case "":
            return None
        case "earliest":
            return Bound(EARLIEST)
        case "latest":
            return Bound(LATEST)
    offsets = offsets_from(options[name] or "", name)
    if min(offsets.values()) < EARLIEST:
        raise InvalidArgumentError(f"option {name} has an offset below -2 (earliest)")
    return Bound(offsets)


def _refuse_offset(bound: Bound, offset: int, sentence: str) -> None:
    offsets = bound.at.values() if isinstance(bound.at, Mapping) else [bound.at]
    if not bound.is_time and offset in offsets:
        raise InvalidArgumentError(sentence)


def _refuse_contradiction(start: Bound, end: Bound) -> None:
    """Raise if start and end by partition do not fit together."""
    if not isinstance(start.at, Mapping) or not isinstance(end.at, Mapping):
        return
    if different := set(start.at) ^ set(end.at):
        topic, number = min(different)
        raise InvalidArgumentError(
            f"starting and ending offsets must name the same partitions; {topic}-{number} is only in one"
        )
    for where, first in start.at.items():
        last = end.at[where]
        if start.is_time == end.is_time and 0 <= last < first:
            raise InvalidArgumentError(
                f"{where[0]}-{where[1]}: the start {first} is beyond the end {last}"
            )
