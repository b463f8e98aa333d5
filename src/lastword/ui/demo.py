"""A store with examples: three days of a small shop, as if it had been there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from lastword.clock import system_clock
from lastword.opening import open_store
from lastword.testing import InProcess, ManualClock
from lastword.topic import Topic

_HOUR_MS = 3_600_000
_HOURS = 72

Rows = list[tuple[str, str | None]]


def fill(folder: str) -> None:
    """Make the store, with a cleaner that came by now and then."""
    clock, chance = ManualClock(system_clock() - _HOURS * _HOUR_MS), random.Random(7)
    rolled = {"segment.ms": 6 * _HOUR_MS}
    with open_store(folder, clock=clock) as store:
        users = store.create_topic("users", 2, {**rolled, "min.cleanable.dirty.ratio": 0.4})
        prices = store.create_topic("shop.prices", 1, rolled)
        carts = store.create_topic(
            "shop.carts", 1, {**rolled, "delete.retention.ms": 12 * _HOUR_MS}
        )
        events = store.create_topic(
            "audit.events", 1, {"cleanup.policy": "delete", "retention.ms": 48 * _HOUR_MS}
        )
        store.create_topic("search.index", 4, {"min.compaction.lag.ms": _HOUR_MS})
        for hour in range(_HOURS):
            for topic, rows in _hour(chance, users, prices, carts, events, hour):
                topic.append(rows)
            clock.advance(_HOUR_MS)
            if hour % 9 == 8 and hour < 60:
                store.clean(runner=InProcess())
                store.expire()
        with store.consumer("billing", ["shop.carts"]) as billing:
            billing.poll(max_records=120)
            billing.commit()


def _hour(
    chance: random.Random, users: Topic, prices: Topic, carts: Topic, events: Topic, hour: int
) -> Iterator[tuple[Topic, Rows]]:
    """What an hour brings."""
    yield (
        users,
        [
            (
                f"user-{n}",
                _json(name=f"User {n}", city=chance.choice(_CITIES), hour=hour),
            )
            for n in chance.sample(range(400), 60)
        ],
    )
    yield prices, [(f"sku-{chance.randrange(80):03}", f"{chance.uniform(1, 99):.2f}") for _ in range(150)]  # fmt: skip
    yield carts, [(f"cart-{10 * hour + n}", _json(items=n + 1)) for n in range(10)]
    yield carts, [(f"cart-{10 * (hour - 2) + n}", None) for n in range(8) if hour > 1]
    yield events, [(f"event-{hour}-{n}", f"logged in from {chance.choice(_CITIES)}") for n in range(20)]  # fmt: skip


def _json(**fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False)


_CITIES = ("Berlin", "Lisboa", "São Paulo", "Kyōto", "Reykjavík")
