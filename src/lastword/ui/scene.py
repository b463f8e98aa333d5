"""The scene: a topic of the visitor's own, with the real cleaner going step by step.

A store in a temporary folder, a clock that the visitor moves, and the cleaner's own plan, mark, sweep
and commit, run in this process. Nothing here knows how compaction works; it only shows what they did.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from fastapi import HTTPException

from lastword.cleaner import choose
from lastword.cleaner.choose import Asked, decisions_for
from lastword.cleaner.plan import Clean
from lastword.cleaner.run import Cleaner
from lastword.cleaner.verdicts import Verdict, last_offsets, verdicts
from lastword.cleaner.work import Common, Work
from lastword.errors import InvalidArgumentError, LastwordError
from lastword.opening import open_store
from lastword.passes import TOMBSTONE
from lastword.testing import InProcess, ManualClock
from lastword.ui.anatomy import delete_retention_point
from lastword.ui.scene_state import Phase, SceneState, records_of, survivors_of, text_of
from lastword.ui.values import spelled
from lastword.words import counted, in_time, removed_in_words

MOST_RECORDS = 60
MOST_CHARS = 20  # of a key or a value
MOST_ADVANCE_MS = 366 * 86_400_000
OVER = "this scene is over; begin a new one"
_WENT_ON = "This scene has gone on meanwhile, in another tab; here is how far it is."
_TOPIC = "scene"
_SETTINGS = {
    "min.cleanable.dirty.ratio": 0.1,
    "delete.retention.ms": 3_600_000,
    "file.delete.delay.ms": 0,
}
# Kafka's own example, in two segments and an active one.
_FIRST_LOG = (
    (("K1", "V1"), ("K2", "V2"), ("K1", "V3"), ("K1", "V4")),
    (("K3", "V5"), ("K2", "V6"), ("K4", "V7"), ("K5", "V8")),
    (("K5", "V9"), ("K2", "V10"), ("K6", "V11")),
)


class Scene:
    """One visitor's. Every call returns the new state."""

    def __init__(self, scene_id: str, now_ms: int) -> None:
        self.id = scene_id
        self._folder = tempfile.TemporaryDirectory(
            prefix="lastword-scene-", ignore_cleanup_errors=True
        )
        self._clock = ManualClock(now_ms)
        self._store = open_store(self._folder.name, clock=self._clock)
        self._topic = self._store.create_topic(_TOPIC, config=_SETTINGS)
        self._cleaner: Cleaner | None = None  # of the pass that is under way
        self._work: Work | None = None
        self._plan: Clean | None = None
        self._verdicts: dict[int, Verdict] = {}  # by offset
        self._offset_map: dict[str, int] = {}
        self._phase, self._message = Phase.IDLE, "Let the cleaner look, or send records first."
        self._lock = threading.Lock()
        self._is_over = False
        for segment in _FIRST_LOG:
            self._topic.roll()
            self._topic.append(segment)

    def close(self) -> None:
        """The scene is over, and all that it left goes."""
        with self._lock:
            self._is_over = True
            self._leave()
            self._store.close()
            self._folder.cleanup()

    def state(self) -> SceneState:
        with self._playing():
            return self._state()

    def send(self, key: str, value: str | None) -> SceneState:
        with self._playing():
            if self._topic.describe().records >= MOST_RECORDS:
                raise InvalidArgumentError(
                    f"a scene has {MOST_RECORDS} records at the most; roll, and clean it"
                )
            (place,) = self._topic.append([(key, value)]).ranges
            what = f"a tombstone of {key}" if value is None else f"{key} = {value}"
            self._said(f"Appended {spelled(what)} at offset {place.base_offset}.")
            return self._state()

    def roll(self) -> SceneState:
        with self._playing():
            rolled = self._topic.roll()
            self._said(
                "The active segment is closed; what comes next opens a new one."
                if rolled
                else "The active segment is empty: there is nothing to roll."
            )
            return self._state()

    def advance(self, ms: int) -> SceneState:
        with self._playing():
            self._clock.advance(ms)
            self._said(f"It is {in_time(self._clock())} now.")
            return self._state()

    def step(self, seen: Phase | None) -> SceneState:
        """Let the cleaner do what comes next: plan, mark, sweep, commit.

        If the visitor has seen another phase, nothing: the button that was pressed said something else.
        """
        with self._playing():
            if seen is not None and seen is not self._phase:
                return replace(self._state(), message=_WENT_ON)
            match self._phase:
                case Phase.IDLE | Phase.COMMITTED:
                    self._look()
                case Phase.PLANNED:
                    self._mark()
                case Phase.MARKED:
                    self._sweep()
                case Phase.SWEPT:
                    self._commit()
            return self._state()

    def _said(self, message: str) -> None:
        """What the visitor did; a pass that was done before is then over."""
        self._message = message
        if self._phase is Phase.COMMITTED:
            self._phase = Phase.IDLE

    @contextmanager
    def _playing(self) -> Iterator[None]:
        """One act at a time, as long as the scene is on."""
        with self._lock:
            if self._is_over:
                raise HTTPException(404, OVER)
            yield

    def _look(self) -> None:
        """As a round begins: roll what is due, then decide."""
        row, asked = self._topic.row, Asked()
        choose.roll(self._store.base, [row], asked)
        (decision,) = decisions_for(self._store.base, [row], asked)
        if not isinstance(decision, Clean):
            self._phase = Phase.IDLE
            self._message = f"The cleaner leaves it alone: {decision.reason}."
            return
        self._plan = decision
        self._phase = Phase.PLANNED
        extent = f"offsets {decision.start} to {decision.end - 1} for the first time"
        what = extent if decision.end > decision.start else "nothing new"
        self._message = f"Plan: it would be cleaned ({decision.cause}); it covers {what}."

    def _mark(self) -> None:
        assert self._plan is not None
        self._cleaner = Cleaner(self._store.base, InProcess()).__enter__()
        self._work = self._cleaner.claim(self._plan)
        if self._work is None:
            self._over("The log is no longer as it was planned; the cleaner looks again.")
            return
        self._cleaner.mark([self._work])
        self._verdicts = {v.offset: v for v in verdicts(self._store.base, self._plan)}
        last = last_offsets(self._store.base, self._plan)
        self._offset_map = {text_of(key): offset for key, offset in last.items()}
        self._phase = Phase.MARKED
        said = (f"Mark: {self._in_the_map()}", self._to_go(self._work), self._newer(self._plan.end))
        self._message = " ".join(filter(None, said))

    def _sweep(self) -> None:
        assert self._cleaner is not None
        assert self._work is not None
        self._cleaner.sweep([self._work])
        written = sum(s.facts.records for s in self._work.swept)
        kept = len(self._work.files) - len(self._work.sweep_plan.retired)
        stay = f"; {counted(kept, 'file')} without dead records may stay" if kept else ""
        self._phase = Phase.SWEPT
        self._message = (
            f"Sweep: {counted(written, 'survivor')} to {counted(len(self._work.swept), 'new file')}"
            f"{stay}. Readers still see the old ones."
        )

    def _commit(self) -> None:
        assert self._cleaner is not None
        assert self._work is not None
        done = self._cleaner.commit(self._work, Common(self._clock(), {}, ()))
        if done.error:
            self._over(f"Nothing was changed: {done.error}")
            return
        self._store.gc()
        self._over(
            f"Commit: the files were swapped in one transaction. {done.records_in} → "
            f"{counted(done.records_out, 'record')} ({removed_in_words(done.removed)} removed).",
            Phase.COMMITTED,
        )

    def _in_the_map(self) -> str:
        if not self._offset_map:
            return "nothing is covered that was not before, so only tombstones were looked at."
        keys = counted(len(self._offset_map), "key")
        return f"the dirty section was read, newest first; {keys} went into the map."

    def _to_go(self, work: Work) -> str:
        removed = sum((Counter(m.removed) for m in work.marks.files.values()), Counter[str]())
        past = ", past its delete horizon" if removed[TOMBSTONE] else ""
        return f"To go: {removed_in_words(removed)}{past}."

    def _newer(self, end: int) -> str:
        """Of which keys there are newer records that it did not see: a newcomer may miss that they stay."""
        newer = {text_of(r.key or b"") for r in self._topic.read(0, end)} & self._offset_map.keys()
        if not newer:
            return ""
        keys = " and ".join(sorted(newer))
        return f"Newer records of {keys} come from offset {end} on, where mark does not look."

    def _over(self, message: str, phase: Phase = Phase.IDLE) -> None:
        self._leave()
        self._plan = self._work = None
        self._verdicts, self._offset_map = {}, {}
        self._phase, self._message = phase, message

    def _leave(self) -> None:
        """The cleaner gives its claim back, and ends: its heart would beat as long as the page is on."""
        if self._cleaner is not None:
            with suppress(LastwordError):
                self._cleaner.release()
                self._cleaner.__exit__()
            self._cleaner = None

    def _state(self) -> SceneState:
        base, row = self._store.base, self._topic.row
        (decision,) = decisions_for(base, [row], Asked())
        partition, now_ms = decision.state.row, self._clock()
        done = self._store.passes(_TOPIC)
        latest = self._topic.latest().to_dict()
        return SceneState(
            id=self.id,
            clock_ms=now_ms,
            clock=in_time(now_ms),
            phase=self._phase,
            message=self._message,
            records=records_of(self._topic.read(0), decision, self._verdicts, now_ms),
            log_start=partition.log_start,
            delete_retention_point=delete_retention_point(decision),
            first_dirty=partition.first_dirty,
            log_end=partition.log_end,
            why=("your pass is at work on it",)
            if self._work
            else self._topic.why().partitions[0].sentences,
            offset_map=self._offset_map,
            survivors=survivors_of(base.root, self._work) if self._work else (),
            latest={text_of(key): text_of(value) for key, value in latest.items()},
            removed={r: sum(p.removed.get(r, 0) for p in done) for r in ("obsolete", "tombstone")},
            passes=sum(p.error is None for p in done),
        )
