"""The overview, kept fresh while somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from lastword.cleaner.overview import Overview, overview
from lastword.foundation import Foundation
from lastword.store import Store
from lastword.ui.watch import Watch, _Seen
from tests.waiting import until


class TestWatch:
    def test_who_changes_something_sees_it(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even if an overview was being made meanwhile."""
        looked, go_on = threading.Event(), threading.Event()

        def slow(base: Foundation) -> Overview:
            seen = overview(base)
            looked.set()
            assert go_on.wait(150)
            return seen

        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        monkeypatch.setattr("lastword.ui.watch.overview", slow)
        watch = Watch(local.base)
        watch.begin()
        assert looked.wait(150)
        local.create_topic("mine")
        watch.forget()
        go_on.set()
        assert [t.name for t in watch.seen().topics] == ["mine"]
        assert [t.name for t in watch.fresh().topics] == ["mine"]

    @pytest.mark.parametrize("how", [Watch.seen, Watch.fresh])
    def test_the_first_visitor_waits_for_the_one_that_is_being_made(
        self, local: Store, monkeypatch: pytest.MonkeyPatch, how: Callable[[Watch], Overview]
    ) -> None:
        made, began, go_on = [], threading.Event(), threading.Event()

        def slow(base: Foundation) -> Overview:
            made.append(overview(base))
            began.set()
            assert go_on.wait(150)
            return made[-1]

        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        monkeypatch.setattr("lastword.ui.watch.overview", slow)
        monkeypatch.setattr("lastword.ui.watch._FRESH_S", 1e9)
        watch = Watch(local.base)
        watch.begin()
        assert began.wait(150)
        threading.Timer(0.1, go_on.set).start()
        assert how(watch) is made[0]
        assert len(made) == 1

    def test_what_takes_long_is_made_behind_the_scenes(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        watch = Watch(local.base)
        watch.seen()
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        local.create_topic("theirs")
        assert watch.seen().topics == ()
        monkeypatch.setattr("lastword.ui.watch._FRESH_S", 0)
        monkeypatch.setattr("lastword.ui.watch._REST", 0)
        until(lambda: bool(watch.seen().topics))

    def test_one_is_made_at_a_time(self, local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        began, go_on = threading.Event(), threading.Event()
        begun: list[None] = []

        def slow(base: Foundation) -> Overview:
            began.set()
            assert go_on.wait(150)
            return overview(base)

        watch = Watch(local.base)
        watch.seen()
        for name, value in (("_QUICK_S", -1), ("_FRESH_S", 0), ("_REST", 0), ("overview", slow)):
            monkeypatch.setattr(f"lastword.ui.watch.{name}", value)
        begin = watch.begin

        def counted() -> None:
            begun.append(None)
            begin()

        monkeypatch.setattr(watch, "begin", counted)
        watch.seen()
        assert began.wait(150)
        for _ in range(5):
            watch.seen()
        go_on.set()
        assert len(begun) == 1

    def test_an_overview_and_when_it_was_begun_are_read_together(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else one that is made meanwhile would lend its age to the old one, which lacks a change."""
        watch = Watch(local.base)
        watch.seen()
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        local.create_topic("mine")
        watch.forget()
        was_old = _Seen.is_old

        def meanwhile(seen: _Seen) -> bool:
            monkeypatch.setattr(_Seen, "is_old", was_old)
            watch._make(watch._wanted_s)
            return False

        monkeypatch.setattr(_Seen, "is_old", property(meanwhile))
        assert [t.name for t in watch.seen().topics] == ["mine"]

    def test_what_was_changed_here_is_seen_at_once(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        watch = Watch(local.base)
        watch.seen()
        local.create_topic("mine")
        watch.forget()
        assert [t.name for t in watch.seen().topics] == ["mine"]

    def test_who_looks_after_a_long_time_waits(
        self, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.watch._QUICK_S", -1)
        watch = Watch(local.base)
        watch.seen()
        local.create_topic("theirs")
        assert watch.seen().topics == ()
        assert watch._seen is not None
        watch._seen = replace(watch._seen, began_s=watch._seen.began_s - 3_600)
        assert [t.name for t in watch.seen().topics] == ["theirs"]
