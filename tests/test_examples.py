"""What the examples promise, beyond what one run of them shows."""

from __future__ import annotations

import importlib.util
import random
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import lastword
from lastword.topic import Topic

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGES = random.Random(7).choices(["/home", "/shop", "/about"], k=1_600)


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestCounterTakeover:
    example = loaded("counter_takeover")

    @pytest.fixture
    def journal(self, tmp_path: Path) -> Topic:
        store = lastword.open(tmp_path)
        clicks = store.create_topic("clicks", config={"cleanup.policy": "delete"})
        clicks.append([(page, "click") for page in PAGES])
        return store.create_topic("journal", partitions=3)

    def test_nothing_is_lost_or_doubled_whenever_it_is_killed(
        self, journal: Topic, tmp_path: Path
    ) -> None:
        chance, stood_at = random.Random(11), 0
        for _ in range(5):
            counter = self.example.started(str(tmp_path))
            for _ in range(2):  # where it begins, and its first append
                counter.stdout.readline()
            began = time.monotonic()
            counter.stdout.readline()
            an_append = time.monotonic() - began
            time.sleep(chance.uniform(0, an_append))  # so that it dies anywhere in the next one
            counter.kill()
            counter.communicate()
            stood_at = self.agrees(journal, at_least=stood_at)
        assert 0 < stood_at < len(PAGES)
        assert self.example.started(str(tmp_path)).wait() == 0
        assert self.agrees(journal, at_least=stood_at) == len(PAGES)

    def test_two_at_once_do_no_harm(self, journal: Topic, tmp_path: Path) -> None:
        counters = [self.example.started(str(tmp_path)) for _ in range(2)]
        stood_at = 0
        while any(counter.poll() is None for counter in counters):
            stood_at = self.agrees(journal, at_least=stood_at)
        for counter in counters:
            counter.communicate()
        assert self.agrees(journal, at_least=stood_at) == len(PAGES)

    def agrees(self, journal: Topic, at_least: int) -> int:
        """The position of the journal, whose counts must be those of the clicks before it."""
        counts, position = self.example.restore(journal)
        assert counts == Counter(PAGES[:position])
        assert position >= at_least
        return int(position)
