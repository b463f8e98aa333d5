"""Numbers in words."""

from __future__ import annotations

import pytest

from lastword.words import setting_in_words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("retention.ms", "604800000", "7 d"),
        ("retention.ms", "-1", "no limit"),
        ("max.compaction.lag.ms", str(2**63 - 1), "no limit"),
        ("min.compaction.lag.ms", "0", ""),
        ("segment.bytes", "268435456", "268.4 MB"),
        ("log.cleaner.dedupe.buffer.size", "134217728", "134.2 MB"),
        ("log.cleaner.io.max.bytes.per.second", "2000000.0", "2.0 MB"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157e+308", "no limit"),
        ("min.cleanable.dirty.ratio", "0.5", ""),
        ("cleanup.policy", "compact", ""),
    ],
)
def test_settings(key: str, value: str, words: str) -> None:
    assert setting_in_words(key, value) == words
