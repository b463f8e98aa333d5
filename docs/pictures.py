"""Draw the pictures of the guide. `docs/generate.py` writes them to `docs/guide/pictures/`.

A log is a strip of cells with their offsets below. Its records are written as in the tests, `a=1` and
`b=∅`, with a mark in front where one is to look different: `~` it was removed, `!` it is what the
picture is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 720
CELL_HEIGHT = 30

SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
STYLE = f"""
text {{ font: 13px {SANS}; fill: #24292f; text-anchor: middle }}
.left {{ text-anchor: start }}
.heading {{ font-weight: 600; text-anchor: start }}
.note {{ font-size: 12px; fill: #57606a }}
.record, .name {{ font: 12px {MONO} }}
.name {{ font-weight: 600; text-anchor: start }}
.offset {{ font: 10px {MONO}; fill: #6e7781 }}
.panel {{ fill: #fdfcf8; stroke: #d8d3c4 }}
.cell {{ fill: #e6eefb; stroke: #4c6f9f }}
.tombstone {{ fill: #fbe3de; stroke: #ab4f3c }}
.removed {{ fill: none; stroke: #b9bdc3; stroke-dasharray: 3 3 }}
text.removed {{ fill: #a0a5ab; stroke: none; text-decoration: line-through }}
rect.marked {{ fill: #fff0bd; stroke: #a97b12 }}
rect.tombstone.marked {{ fill: #fbd3b8; stroke: #a97b12 }}
.box {{ fill: #ffffff; stroke: #57606a }}
.dead {{ fill: #f3f1ec; stroke: #ab4f3c; stroke-dasharray: 5 3 }}
.group {{ fill: none; stroke: #a97b12; stroke-dasharray: 5 3 }}
.line {{ fill: none; stroke: #57606a; stroke-width: 1.5 }}
.cut {{ stroke: #a97b12; stroke-width: 2 }}
"""
ARROW_HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#57606a"/></marker>'
)


@dataclass(frozen=True)
class Log:
    """A strip that was drawn: where its offsets are."""

    x: int
    y: int
    first: int
    cell_width: int

    @property
    def bottom(self) -> int:
        return self.y + CELL_HEIGHT

    def before(self, offset: int) -> int:
        """The left edge of an offset's cell: the position of who goes on from there."""
        return self.x + (offset - self.first) * self.cell_width

    def middle(self, offset: int) -> int:
        return self.before(offset) + self.cell_width // 2


class Picture:
    """Shapes on a panel, which is light so that they can be seen on any page."""

    def __init__(self, title: str, height: int) -> None:
        self._title, self._height = title, height
        self._parts: list[str] = []
        self._rect("panel", (1, 1, WIDTH - 2, height - 2), radius=10)

    def svg(self) -> str:
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" '
            f'width="{WIDTH}" height="{self._height}" role="img">',
            f"<title>{escape(self._title)}</title>",
            f"<style>{STYLE}</style>",
            f"<defs>{ARROW_HEAD}</defs>",
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def text(self, kind: str, x: float, y: float, text: str) -> None:
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def log(
        self,
        at: tuple[int, int],
        name: str,
        records: str | Sequence[str],
        *,
        first: int = 0,
        cell_width: int = 64,
    ) -> Log:
        """A strip of records, with the topic's name above and the offsets below."""
        log = Log(*at, first, cell_width)
        if name:
            self.text("name", log.x, log.y - 8, name)
        shown = records.split() if isinstance(records, str) else records
        for offset, record in enumerate(shown, first):
            self._cell(log, offset, record)
        return log

    def _cell(self, log: Log, offset: int, record: str) -> None:
        text = record.lstrip("~!")
        mark = {"~": " removed", "!": " marked"}.get(record[0], "")
        kind = "tombstone" if text.endswith("∅") else "cell"
        self._rect(kind + mark, (log.before(offset), log.y, log.cell_width, CELL_HEIGHT))
        middle = log.middle(offset)
        self.text(f"record{mark}", middle, log.y + 19, text)
        self.text("offset", middle, log.bottom + 12, str(offset))

    def box(
        self, at: tuple[int, int], size: tuple[int, int], *lines: str, kind: str = "box"
    ) -> None:
        """A box; its first line says what it is, the others what is in it."""
        (x, y), (width, height) = at, size
        self._rect(kind, (x, y, width, height), radius=6)
        top = y + height / 2 - 9 * (len(lines) - 1) + 4
        for number, line in enumerate(lines):
            kind_of_text = "record" if number else "title"
            self.text(kind_of_text, x + width / 2, top + 18 * number, line)

    def group(self, at: tuple[int, int], size: tuple[int, int], label: str) -> None:
        """A dashed frame around what belongs together, with its label below."""
        (x, y), (width, height) = at, size
        self._rect("group", (x, y, width, height), radius=8)
        self.text("note", x + width / 2, y + height + 16, label)

    def arrow(self, *points: tuple[float, float]) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline class="line" marker-end="url(#head)" points="{path}"/>')

    def cut(self, log: Log, offset: int) -> None:
        """A line before an offset: a position."""
        x = log.before(offset)
        self._parts.append(
            f'<line class="cut" x1="{x}" y1="{log.y - 6}" x2="{x}" y2="{log.bottom + 18}"/>'
        )

    def _rect(self, kind: str, where: tuple[int, int, int, int], radius: int = 0) -> None:
        x, y, width, height = where
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'
        )


def cache() -> Picture:
    p = Picture("A restart reads what is new; a snapshot that was away too long is made anew", 400)
    for top, heading, records, note in (
        (
            32,
            "A restart reads only what is new",
            "a=1 b=2 a=3 c=4 !c=∅ !d=5",
            ("two records are read",),
        ),
        (
            222,
            "Away too long: the tombstone has gone",
            "~a=1 !b=2 !a=3 ~c=4 ~c=∅ !d=5",
            ("from position 4 on nothing says that c is deleted;", "so all is read, and c goes"),
        ),
    ):
        p.text("heading", 24, top, heading)
        log = p.log((24, top + 38), "prices", records)
        p.cut(log, 4)
        p.box((24, top + 106), (230, 46), "snapshot, position 4", "a=3 b=2 c=4")
        p.arrow((254, top + 129), (log.before(4), top + 129), (log.before(4), top + 90))
        p.arrow((log.before(6) + 8, top + 53), (484, top + 53))
        p.box((490, top + 30), (206, 46), "table, position 6", "a=3 b=2 d=5")
        for number, line in enumerate(note):
            p.text("note left", 296, top + 127 + 17 * number, line)
    return p


def search_index() -> Picture:
    p = Picture("A database's changes through a topic into a search index", 316)
    p.text("heading", 24, 32, "From a database table to a search index")
    p.box((24, 72), (116, 54), "database", "article")
    p.arrow((140, 99), (192, 99))
    records = "1=Paper 2=Milk 3=Baker !3=Elm 2=Lane !2=∅"
    log = p.log((200, 84), "articles", records, cell_width=82)
    p.cut(log, 3)
    p.text("note left", 24, 146, "each change a record,")
    p.text("note left", 24, 162, "a deletion a tombstone")

    p.box((456, 190), (240, 62), "changes since position 3", "3=Elm", "2=∅")
    for offset in (3, 5):
        p.arrow((log.middle(offset), 134), (log.middle(offset), 182))
    p.text("note", 576, 274, "the last record of each key")
    p.text("note", 576, 290, "that changed, and no other")
    p.arrow((450, 221), (370, 221))
    p.box((36, 190), (314, 62), "search index", "documents 1 and 3", "position 3 → 6")
    p.group((24, 178), (338, 86), "one transaction: they always agree")
    return p


def event_sourcing() -> Picture:
    p = Picture("An account is its snapshot and the events since", 282)
    p.text("heading", 24, 32, "An account is its snapshot and the events since")
    events = "alice+9 bob+5 alice-3 carol+4 bob-2 !alice+1 bob+7 !alice-4"
    log = p.log((24, 70), "events (not compacted)", events, cell_width=84)
    p.cut(log, 5)
    snapshots = ["~alice=6 at 3", "!alice=6 at 5", "bob=3 at 5", "carol=4 at 5"]
    kept = p.log((24, 178), "snapshots (compacted)", snapshots, cell_width=104)
    x, to = kept.middle(1) + 20, log.before(5)
    p.arrow((x, 172), (x, 144), (to, 144), (to, 124))
    p.text("note left", x + 8, 162, "it has the events before 5")
    p.box((456, 164), (240, 58), "alice now", "6 + 1 - 4 = 3")
    for offset in (5, 7):
        p.arrow((log.middle(offset), 120), (log.middle(offset), 157))
    p.text(
        "note left",
        24,
        250,
        "A snapshot is a short cut: lost, late or old, the account is the same,",
    )
    p.text("note left", 24, 266, "as long as the events since it are there.")
    return p


def takeover() -> Picture:
    p = Picture("A counter is killed; another goes on from the journal", 338)
    p.text("heading", 24, 32, "Counts and position are journalled in one append")
    log = p.log((24, 70), "clicks", "/a /b /a /c /a /b !/a !/a !/b", cell_width=56)
    p.cut(log, 6)
    p.text("note left", log.before(9) + 14, 82, "read by the first counter,")
    p.text("note left", log.before(9) + 14, 98, "but not journalled")
    p.box((120, 154), (170, 46), "first counter", "kill -9", kind="dead")
    p.box((510, 154), (170, 46), "second counter", "goes on at 6")
    p.arrow((205, 122), (205, 148))
    p.arrow((log.before(8), 122), (log.before(8), 136), (595, 136), (595, 148))

    p.text("name", 24, 240, "journal (compacted)")
    x, first = 24, 0
    for records in ("/a=2 /b=1 pos=3", "/a=3 /b=2 /c=1 pos=6", "!/a=5 !/b=3 !pos=9"):
        count = len(records.split())
        p.log((x, 256), "", records, first=first, cell_width=64)
        p.group((x - 5, 251), (count * 64 + 10, 54), "one append")
        x, first = x + count * 64 + 16, first + count
    p.arrow((190, 200), (190, 244))
    p.arrow((270, 200), (270, 244))
    p.arrow((655, 200), (655, 244))
    p.arrow((455, 248), (455, 177), (503, 177))
    p.text("note", 420, 222, "restores")
    return p


def feature_flags() -> Picture:
    p = Picture("One topic of flags, and a table in every process", 290)
    p.text("heading", 24, 32, "One topic, and a table in every process")
    p.box((24, 66), (150, 46), "anyone", "flags[…] = 'on'")
    p.arrow((174, 89), (222, 89))
    records = "dark-mode=on ~new-search=off !new-search=on"
    log = p.log((230, 74), "flags", records, cell_width=155)
    start = log.middle(2)
    for number, x in enumerate((24, 264, 504)):
        p.box((x, 186), (192, 66), f"process {number}: a table", "dark-mode=on", "new-search=on")
        p.arrow((start, 124), (start, 150), (x + 96, 150), (x + 96, 180))
    p.text("note", WIDTH / 2, 142, "each reads what is new")
    p.text("note", WIDTH / 2, 275, "To look at a flag is to look into the process's own memory")
    return p


def offsets() -> Picture:
    p = Picture("Results and offsets go in one append", 268)
    p.text("heading", 24, 32, "Results and offsets go in one append")
    first = p.log((24, 76), "orders-0", "o-1 o-3 !o-4 !o-5", cell_width=52)
    second = p.log((24, 166), "orders-1", "o-0 o-2", cell_width=52)
    p.cut(first, 2)
    p.cut(second, 2)
    p.box((290, 110), (112, 52), "consumer")
    p.arrow((first.before(4) + 6, 91), (262, 91), (262, 126), (284, 126))
    p.arrow((second.before(2) + 8, 181), (262, 181), (262, 146), (284, 146))
    p.log((446, 76), "invoices", "o-0 o-2 !o-4 !o-5", first=2, cell_width=60)
    kept = ["~…/0=2", "~…/1=2", "!…/0=4", "!…/1=2"]
    p.log((446, 166), "offsets", kept, cell_width=60)
    p.text("note left", 446, 234, "compacted")
    p.arrow((402, 136), (554, 136))
    p.group((560, 68), (132, 150), "all or nothing")
    return p


PICTURES: dict[str, Callable[[], Picture]] = {
    "cache": cache,
    "search-index": search_index,
    "event-sourcing": event_sourcing,
    "takeover": takeover,
    "feature-flags": feature_flags,
    "offsets": offsets,
}
