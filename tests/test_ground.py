"""Pure rules: partitioner, settings, names, addresses, rolling. No store, no Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastword import address, config
from lastword.address import Address
from lastword.config import SYNONYMS, TOPIC_KEYS, Setting
from lastword.errors import InvalidConfigError, InvalidTopicError, NotAStoreError
from lastword.model import FileFacts, valid_partition_count, valid_topic_name
from lastword.partitioner import murmur2, partition_for
from lastword.segments import ActiveSegment, jitter_ms, rolls_before

KNOWN_HASHES = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def plain_murmur2(key: bytes) -> int:
    """Kafka's hash, one key at a time, in plain integers."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail := key[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


class TestPartitioner:
    def test_known_vectors(self) -> None:
        hashes = murmur2(pa.array([k.encode() for k in KNOWN_HASHES], pa.binary()))
        assert hashes.tolist() == list(KNOWN_HASHES.values())

    @given(st.lists(st.binary(max_size=40)), st.integers(0, 3))
    def test_equals_the_plain_hash(self, keys: list[bytes], skip: int) -> None:
        array = pa.array(keys, pa.binary())[skip:]  # a slice: its offsets do not start at 0
        assert murmur2(array).tolist() == [plain_murmur2(k) for k in keys[skip:]]

    @given(st.lists(st.binary(min_size=1000, max_size=1100), max_size=4))
    def test_long_keys_too(self, keys: list[bytes]) -> None:
        array = pa.array([*keys, b"abc"], pa.binary())
        assert murmur2(array).tolist() == [*map(plain_murmur2, keys), KNOWN_HASHES["abc"]]

    def test_nulls_do_not_disturb_the_others(self) -> None:
        array = pa.array([b"abc", None, b"21"], pa.binary())
        assert murmur2(array)[[0, 2]].tolist() == [KNOWN_HASHES["abc"], KNOWN_HASHES["21"]]

    @given(st.integers(1, 1000), st.lists(st.binary(max_size=8), min_size=1))
    def test_partitions_are_in_range(self, count: int, keys: list[bytes]) -> None:
        found = partition_for(pa.array(keys, pa.binary()), count)
        assert np.all((found >= 0) & (found < count))


class TestSettings:
    def test_defaults_are_kafkas_but_for_three(self) -> None:
        defaults = config.to_strings(config.topic_config({}))
        assert defaults == {
            "cleanup.policy": "compact",  # Kafka: delete
            "min.cleanable.dirty.ratio": "0.5",
            "min.compaction.lag.ms": "0",
            "max.compaction.lag.ms": str(2**63 - 1),
            "delete.retention.ms": "86400000",
            "segment.bytes": str(256 << 20),  # Kafka: 1 GiB
            "segment.ms": "604800000",
            "segment.jitter.ms": "0",
            "retention.ms": "604800000",
            "retention.bytes": "-1",
            "file.delete.delay.ms": "3600000",  # Kafka: a minute
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": str(2**63 - 1),
            "message.timestamp.after.max.ms": "3600000",
            "compression.type": "lz4",  # Kafka: producer
        }

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("min.cleanable.dirty.ratio", "-0.1"),
            ("min.cleanable.dirty.ratio", "1.2"),
            ("min.cleanable.dirty.ratio", "nan"),
            ("min.cleanable.dirty.ratio", "text"),
            ("cleanup.policy", "true"),
            ("cleanup.policy", "foobar"),
            ("cleanup.policy", 5),
            ("min.compaction.lag.ms", "-1"),
            ("max.compaction.lag.ms", "0"),
            ("delete.retention.ms", "-1"),
            ("segment.bytes", str((1 << 20) - 1)),
            ("segment.bytes", str(1 << 31)),
            ("segment.ms", "0"),
            ("segment.ms", str(1 << 63)),
            ("segment.ms", "1.5"),
            ("segment.ms", True),
            ("segment.jitter.ms", "-1"),
            ("retention.ms", "-2"),
            ("retention.bytes", "-2"),
            ("file.delete.delay.ms", "-1"),
            ("message.timestamp.type", "Whenever"),
            ("message.timestamp.before.max.ms", "-1"),
            ("message.timestamp.after.max.ms", "-1"),
            ("compression.type", "brotli"),
        ],
    )
    def test_out_of_bounds(self, key: str, value: object) -> None:
        with pytest.raises(InvalidConfigError, match=f"^{key}={value}: must be"):
            config.topic_config({key: value})

    @pytest.mark.parametrize(
        ("text", "policy"),
        [
            ("compact", {"compact"}),
            ("delete", {"delete"}),
            ("compact,delete", {"compact", "delete"}),
            (" DELETE , Compact ", {"compact", "delete"}),
            (["delete"], {"delete"}),
            ("", set()),
        ],
    )
    def test_policies(self, text: object, policy: set[str]) -> None:
        assert config.topic_config({"cleanup.policy": text}).cleanup_policy == policy

    def test_min_lag_above_max_lag(self) -> None:
        lags = {"min.compaction.lag.ms": "200", "max.compaction.lag.ms": "100"}
        with pytest.raises(InvalidConfigError, match=r"\(200\) must not be greater than .*\(100\)"):
            config.topic_config(lags)
        config.topic_config({**lags, "max.compaction.lag.ms": "200"})

    @pytest.mark.parametrize(
        ("key", "nearest"),
        [
            ("cleanup.polciy", "cleanup.policy"),
            ("retention.seconds", "retention.ms"),
            ("segment.byte", "segment.bytes"),
        ],
    )
    def test_an_unknown_setting_names_the_nearest(self, key: str, nearest: str) -> None:
        with pytest.raises(InvalidConfigError, match=f"unknown topic .* did you mean '{nearest}'"):
            config.topic_config({key: 1})
        with pytest.raises(InvalidConfigError, match="unknown store setting 'log.cleaner.backof"):
            config.store_config({"log.cleaner.backof.ms": 1})
        with pytest.raises(InvalidConfigError, match="unknown topic setting 'zzz'$"):
            config.topic_config({"zzz": 1})

    def test_own_before_the_stores_before_the_default(self) -> None:
        store = {"log.retention.ms": "5", "log.segment.bytes": str(1 << 20)}
        described = {s.key: s for s in config.describe_topic({"retention.ms": "7"}, store)}
        assert _values(described["retention.ms"]) == ("7", "604800000", "topic")
        assert _values(described["segment.bytes"]) == (str(1 << 20), str(256 << 20), "store")
        assert _values(described["segment.ms"]) == ("604800000", "604800000", "default")
        assert described["segment.ms"].sentence.startswith("The active segment is rolled")

    def test_an_error_in_a_store_setting_is_spelled_as_given(self) -> None:
        with pytest.raises(InvalidConfigError, match="^log.cleaner.min.cleanable.ratio=2: must"):
            config.store_config({"log.cleaner.min.cleanable.ratio": "2"})
        with pytest.raises(InvalidConfigError, match="^log.cleaner.dedupe.buffer.size=1048576: "):
            config.store_config({"log.cleaner.dedupe.buffer.size": 1 << 20})

    def test_every_setting_of_a_topic_has_a_default_in_the_store_but_the_codec(self) -> None:
        assert set(SYNONYMS.values()) == TOPIC_KEYS.keys() - {"compression.type"}


def _values(setting: Setting) -> tuple[str, str, str]:
    return setting.value, setting.default, setting.source


class TestNames:
    @pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
    def test_good(self, name: str) -> None:
        assert valid_topic_name(name) == name

    @pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a*"])
    def test_bad(self, name: str) -> None:
        with pytest.raises(InvalidTopicError, match="is not valid"):
            valid_topic_name(name)

    @pytest.mark.parametrize("count", [0, -1, 10_001])
    def test_bad_partition_counts(self, count: int) -> None:
        with pytest.raises(InvalidTopicError, match="1 to 10000 partitions"):
            valid_partition_count(count)


class TestAddress:
    def test_folders(self) -> None:
        assert address.parse("some/where").shown == "some/where"
        assert address.parse("/a/b").folder == "/a/b"
        assert address.parse("file:///a/b").folder == "/a/b"
        assert address.parse("/a?b").folder == "/a?b"
        assert address.parse("file://localhost/a%20b").folder == "/a b"

    def test_a_data_root_elsewhere(self) -> None:
        found = address.parse("file:///a?data_root=s3://u:pw@bucket/x?scheme=http%26region=eu")
        assert found.folder == "/a"
        assert found.data_root == "s3://u:pw@bucket/x?scheme=http&region=eu"
        assert "pw" not in repr(found)

    def test_postgres(self) -> None:
        found = address.parse(
            "postgresql://me:pw@host:5/db?schema=team_a&data_root=s3://b/x&sslmode=require"
        )
        assert found.shown == "postgresql://host:5/db?sslmode=require&schema=team_a"
        assert found.data_root == "s3://b/x"
        assert found.pg_schema == "team_a"
        assert found.postgres is not None
        assert found.postgres.password == "pw"
        assert "pw" not in repr(found)

    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("s3://key:hush@bucket/x", "s3:// is no store"),
            ("file:///a?root=b", "unknown option 'root'"),
            ("", "names no folder"),
            ("./a?data_root=s3://k:hush@b/x", "options need a URL"),
            ("file://elsewhere/a", "names a host"),
            ("file://store?data_root=s3://k:hush@b/x", "names a host"),
            ("file://[x", "is no URL"),
            ("a\0b", "is no folder"),
            ("./a?x=y&data_root=s3://k:hush@b/x", "options need a URL"),
            ("postgresql://me:hush@host:port/db", "not a valid postgresql"),
            ("postgresql://me:hush@host/db?schema=Bad-One", "schema 'Bad-One' must be of"),
        ],
    )
    def test_what_is_none(self, url: str, problem: str) -> None:
        with pytest.raises(NotAStoreError, match=problem) as error:
            address.parse(url)
        assert "hush" not in str(error.value)


class TestSecretsInUrls:
    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("s3://key:HUSH@bucket/x?region=eu", "s3://bucket/x?region=eu"),
            ("s3://key:HU/SH@bucket/x", "s3://bucket/x"),
            ("s3://key:HU?SH@bucket/x", "s3://bucket/x"),
            ("s3://key:H@U/SH@bucket/x", "s3://bucket/x"),
            ("postgresql://me:H@U/SH@host/db?a=b", "postgresql://host/db?a=b"),
            ("s3://bucket/a@b", "s3://bucket/a@b"),
            ("s3://bucket/a?user=me@home&secret=HUSH", "s3://bucket/a?user=me@home&secret=…"),
            ("s3://host:9/a@b", "s3://b"),  # it could be a password: better too little
            ("abfs://c@host/x?sas_token=HUSH&a=b", "abfs://host/x?sas_token=…&a=b"),
            ("s3://b/x?X-Amz-Signature=HUSH", "s3://b/x?X-Amz-Signature=…"),
            ("postgresql://h/db?passfile=HUSH&a=b", "postgresql://h/db?passfile=…&a=b"),
            ("/plain/path@home", "/plain/path@home"),
            ("file:///a?data_root=s3%3A//k%3AHUSH@b/x", "file:///a?data_root=s3://b/x"),
            ("./a?data_root=s3://k:HUSH@b/x", "./a?data_root=s3://b/x"),
            ("./a?b=c&data_root=s3://k:HUSH@b/x", "./a?b=c&data_root=s3://b/x"),
        ],
    )
    def test_they_are_not_shown(self, url: str, shown: str) -> None:
        assert address.without_secrets(url) == shown

    @pytest.mark.parametrize(
        ("url", "recorded"),
        [
            ("s3://key:HUSH@bucket/x@y?region=eu", "s3://bucket/x@y?region=eu"),
            ("abfss://container@account/x", "abfss://container@account/x"),
            ("hdfs://me:HUSH@host:9/x", "hdfs://me@host:9/x"),
            ("/a/b@c", "/a/b@c"),
        ],
    )
    def test_what_is_recorded_is_the_same_place(self, url: str, recorded: str) -> None:
        assert address.without_password(url) == recorded

    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("s3://k:HU/SH@b/x", "write / [?] @ as %2F %3F %40"),
            ("s3://k:HU?SH@b/x", "write / [?] @ as %2F %3F %40"),
            ("s3://k:H@U/SH@b/x", "write / [?] @ as %2F %3F %40"),
            (".", "must not be the folder of its catalog"),
        ],
    )
    def test_a_data_root_says_one_place(self, url: str, problem: str) -> None:
        with pytest.raises(NotAStoreError, match=problem) as error:
            address.checked_data_root(url, Address("here", folder="/a"))
        assert "HU" not in str(error.value)
        with pytest.raises(NotAStoreError, match="must be an absolute path or a URL"):
            address.checked_data_root("data", Address("here"))


def facts(size: int = 100, first_ms: int = 0, max_ms: int = 0) -> FileFacts:
    return FileFacts("p", 1, 0, size, 0, 0, first_ms, max_ms, 0)


class TestRolling:
    config = config.topic_config({"segment.bytes": 1 << 20, "segment.ms": 1000})

    def test_an_empty_segment_is_never_rolled(self) -> None:
        empty = ActiveSegment(base=5, bytes=0, first_ms=None)
        assert not rolls_before(empty, facts(size=5 << 20, max_ms=10**9), self.config, "s")

    @pytest.mark.parametrize(
        ("before", "coming", "rolls"),
        [(1 << 19, 1 << 19, False), (1 << 19, (1 << 19) + 1, True), (1, 2 << 20, True)],
    )
    def test_by_size(self, before: int, coming: int, rolls: bool) -> None:
        active = ActiveSegment(0, before, first_ms=0)
        assert rolls_before(active, facts(size=coming), self.config, "s") is rolls

    @pytest.mark.parametrize(("max_ms", "rolls"), [(5000, False), (6000, False), (6001, True)])
    def test_by_record_time(self, max_ms: int, rolls: bool) -> None:
        active = ActiveSegment(0, 1, first_ms=5000)
        assert rolls_before(active, facts(max_ms=max_ms), self.config, "s") is rolls

    def test_max_lag_caps_the_time_of_compacted_topics(self) -> None:
        lag = {"max.compaction.lag.ms": 10, "segment.ms": 1000}
        active = ActiveSegment(0, 1, first_ms=0)
        compact = config.topic_config(lag)
        delete = config.topic_config({**lag, "cleanup.policy": "delete"})
        assert rolls_before(active, facts(max_ms=11), compact, "s")
        assert not rolls_before(active, facts(max_ms=11), delete, "s")

    def test_jitter_is_below_its_bound_and_differs_between_segments(self) -> None:
        jittery = config.topic_config({"segment.ms": 1000, "segment.jitter.ms": 100})
        found = {jitter_ms(jittery, "1/0", base) for base in range(200)}
        assert found <= set(range(100))
        assert len(found) > 50
        assert jitter_ms(jittery, "1/0", 7) == jitter_ms(jittery, "1/0", 7)
        bounded = config.topic_config({"segment.ms": 10, "segment.jitter.ms": 10**6})
        assert max(jitter_ms(bounded, "1/0", base) for base in range(100)) < 10

    def test_jitter_makes_it_roll_earlier(self) -> None:
        jittery = config.topic_config({"segment.ms": 1000, "segment.jitter.ms": 500})
        base = next(b for b in range(100) if jitter_ms(jittery, "s", b) > 100)
        early = 1000 - jitter_ms(jittery, "s", base)
        active = ActiveSegment(base, 1, first_ms=0)
        assert not rolls_before(active, facts(max_ms=early), jittery, "s")
        assert rolls_before(active, facts(max_ms=early + 1), jittery, "s")
