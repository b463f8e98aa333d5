"""Keys and values as people see them."""

from __future__ import annotations

import json
import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from lastword.ui.values import MOST_CHARS, As, one_line, shown


class TestValues:
    def test_what_they_look_like(self) -> None:
        assert shown(None).kind == "null"
        assert shown(b"").kind == "empty"
        assert shown(b"Paper Road 21").text == "Paper Road 21"
        assert shown(b'{"a": [1, "\xc3\xa9"]}').text == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
        assert shown(b"\xff\x00A").kind == "hex"
        assert shown(b"\xff\x00A").text == f"00000000  {'ff 00 41':<47}  ..A"

    def test_json_is_shown_as_it_was_written(self) -> None:
        written = b'{"a":1.10,"b":12345678901234567.89,"a":[],"c":{},"d":"\\ud800","e":"x, {y}"}'
        text = shown(written).text
        assert text.splitlines() == [
            "{",
            '  "a": 1.10,',
            '  "b": 12345678901234567.89,',
            '  "a": [],',
            '  "c": {},',
            '  "d": "\\ud800",',
            '  "e": "x, {y}"',
            "}",
        ]
        deep = shown(b"[" * 900 + b"]" * 900)
        assert (deep.kind, deep.is_cut, len(deep.text)) == ("json", True, MOST_CHARS)
        assert shown(b"[" * 9_999 + b"]" * 9_999).kind == "text"  # too deep to be read
        large = b"[" + b"1," * 40_000 + b"1]"
        assert shown(large).kind == "text"
        assert shown(large, most=1 << 20).kind == "json"  # on a page of its own

    @given(
        st.recursive(
            st.none() | st.text() | st.floats(allow_nan=False) | st.integers(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        )
    )
    def test_any_json(self, value: object) -> None:
        written = json.dumps([value], ensure_ascii=True)
        found = shown(written.encode(), most=1 << 20)
        assert found.kind == "json"
        assert json.loads(found.text) == [value]
        assert re.sub(r"\s", "", found.text) == re.sub(r"\s", "", written)

    def test_as_asked(self) -> None:
        assert shown(b'{"a":1}', As.TEXT).text == '{"a":1}'
        assert shown(b"abc", As.HEX).text.startswith("00000000  61 62 63")
        assert shown(b"\xffa", As.TEXT).text == "\\xffa"
        assert shown(b"12", As.JSON).kind == "text"  # a mere number gains nothing
        assert shown(b"[" * 100_000).kind == "text"  # no JSON, and no crash

    def test_large_ones_are_cut(self) -> None:
        cut = shown(b"x" * 5_000, most=100)
        assert (len(cut.text), cut.is_cut, cut.bytes) == (100, True, 5_000)
        assert shown(b"\xff" * 5_000, most=160).is_cut
        assert not shown(b"\xff" * 160, most=760).is_cut
        assert len(shown(b"\xff" * 5_000, most=760).text) < 900  # as of text

    def test_what_turns_text_around_or_cannot_be_seen(self) -> None:
        assert shown("a\u202eb\x1b[2J".encode()).text == "a\\u202eb\\u001b[2J"
        assert one_line(b"a\nb") == "a\\nb"
        assert shown("x\u200by\ufeffz\u00ad".encode()).text == "x\\u200by\\ufeffz\\u00ad"
        for unseen in "\u3164\u115f\u034f\u2800\ufe0f\U000e0100\U0001d173":
            assert unseen not in one_line(f"admin{unseen}".encode())
        assert shown("Ünï ❤ 日本 \U0001f600".encode()).text == "Ünï ❤ 日本 \U0001f600"

    def test_of_what_is_large_only_the_beginning_is_looked_at(self) -> None:
        large = "é".encode() * 50_000_000
        tracemalloc.start()
        assert all(shown(large, how, most=601).is_cut for how in As)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000_000  # of all threads; the text alone would be 50 MB
        assert shown("xé".encode() * 1_000, most=3).text == "xéx"
        assert shown(b"x" * 10 + b"\xff", most=100).kind == "hex"
        assert shown("é".encode() * 10 + b"\xc3", most=1_000).kind == "hex"

    @given(st.binary(max_size=200), st.sampled_from(list(As)))
    def test_any_bytes(self, value: bytes, how: As) -> None:
        found = shown(value, how, most=50)
        assert found.bytes == len(value)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", found.text)
