"""The catalog's tables: the only truth about which files make up the log.

Offsets are inclusive where they are called `last_…`, and bounds otherwise. A file is live from the
commit that added it to the commit that retired it; its bytes outlive it by `file.delete.delay.ms`.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

SCHEMA_VERSION = 5  # with every change, a step in migrations.py

metadata = MetaData()

Long = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only by INTEGER


def _serial() -> Column[int]:
    return Column("id", Long, primary_key=True, autoincrement=True)


def _of_partition() -> ForeignKeyConstraint:
    """A row goes with its partition. (A key to the topic would lock it after its partitions.)"""
    its = ["partition.topic_id", "partition.partition"]
    return ForeignKeyConstraint(["topic_id", "partition"], its, ondelete="CASCADE")


store = Table(
    "store",
    metadata,
    Column("schema_version", Integer, nullable=False),
    Column("id", Text, nullable=False),  # also noted at the data root, so that no two share it
    Column("data_root", Text, nullable=False),  # relative: to the folder that holds the catalog
    Column("created_ms", Long, nullable=False),
)

store_config = Table(
    "store_config",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

topic = Table(
    "topic",
    metadata,
    _serial(),
    Column("name", Text, nullable=False, unique=True),
    Column("created_ms", Long, nullable=False),
    Column("is_scattered", Boolean, nullable=False, default=False),  # keys may be in any partition
    Column("source", JSON),  # the Kafka topic that it mirrors
    Column("paused_ms", Long),  # since when the cleaner leaves it alone
    sqlite_autoincrement=True,  # a deleted topic's id never comes back
)

topic_config = Table(
    "topic_config",
    metadata,
    Column("topic_id", Long, ForeignKey("topic.id", ondelete="CASCADE"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

partition = Table(
    "partition",
    metadata,
    Column("topic_id", Long, ForeignKey("topic.id", ondelete="CASCADE"), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("log_start", Long, nullable=False, default=0),
    Column("log_end", Long, nullable=False, default=0),
    Column("first_dirty", Long, nullable=False, default=0),
    Column("exact_from", Long, nullable=False, default=0),  # from here on, no tombstone has gone
    Column("active_base", Long, nullable=False, default=0),
    Column("active_bytes", Long, nullable=False, default=0),
    Column("active_first_ms", Long),
    Column("claim", Text),  # which cleaner works on it
    Column("claim_until_ms", Long),
    Column("failures", Integer, nullable=False, default=0),  # passes that failed in a row
    Column("failure", Text, nullable=False, default=""),  # the last one's error
    Column("retry_after_ms", Long, nullable=False, default=0),
    Column("mirrored_ms", Long),  # when it last had all that its source had
    quote=True,
)

file = Table(
    "file",
    metadata,
    _serial(),
    Column("topic_id", Long, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("segment_base", Long, nullable=False),
    Column("base_offset", Long, nullable=False),
    Column("last_offset", Long, nullable=False),
    Column("records", Long, nullable=False),
    Column("bytes", Long, nullable=False),
    Column("tombstones", Long, nullable=False),
    Column("null_keys", Long, nullable=False),
    Column("first_ms", Long, nullable=False),
    Column("max_ms", Long, nullable=False),
    Column("footer_crc", Long, nullable=False),
    Column("path", Text, nullable=False, unique=True),
    Column("added_commit", Long, nullable=False),
    Column("retired_commit", Long),
    _of_partition(),
)
# Live files of a partition in offset order, found from any position.
Index(
    "live_file",
    file.c.topic_id,
    file.c.partition,
    file.c.last_offset,
    unique=True,
    sqlite_where=text("retired_commit IS NULL"),
    postgresql_where=text("retired_commit IS NULL"),
)

commit = Table(
    "commit",
    metadata,
    _serial(),
    Column("kind", Text, nullable=False),  # append, mirror, roll, clean, …
    Column("topic", Text),  # its name: the row outlives the topic
    Column("created_ms", Long, nullable=False),
    Column("by", Text, nullable=False),
    Column("detail", Text, nullable=False, default=""),
    quote=True,
)

writer = Table(
    "writer",
    metadata,
    Column("writer_id", Text, primary_key=True),
    Column("topic_id", Long, primary_key=True, autoincrement=False),  # 0: over several topics
    Column("version", Long, nullable=False),
    Column("result", Text, nullable=False),  # the ranges of that version's append, as JSON
    Column("appended_ms", Long, nullable=False),
    Column("is_session", Boolean, nullable=False),  # a producer's own id, which may expire
)

# Orphans whose bytes were deleted, for ever: an append that comes late with one must be refused.
condemned_file = Table(
    "condemned_file",
    metadata,
    Column("path", Text, primary_key=True),
    Column("condemned_ms", Long, nullable=False),
)

retired_file = Table(
    "retired_file",
    metadata,
    Column("path", Text, primary_key=True),
    Column("bytes", Long, nullable=False),
    Column("delete_after_ms", Long, nullable=False),
)

# One row a pass. Its columns are the fields of passes.Pass.
pass_ = Table(
    "pass",
    metadata,
    _serial(),
    Column("topic_id", Long, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("commit_id", Long),  # null: it failed
    Column("cause", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("started_ms", Long, nullable=False),
    Column("start", Long, nullable=False),
    Column("end", Long, nullable=False),
    Column("horizon_ms", Long, nullable=False),
    Column("dirty_ratio", Float, nullable=False),
    Column("delay_ms", Long, nullable=False),
    Column("records_in", Long, nullable=False),
    Column("records_out", Long, nullable=False),
    Column("removed", JSON, nullable=False),
    Column("bytes_in", Long, nullable=False),
    Column("bytes_out", Long, nullable=False),
    Column("bytes_read", Long, nullable=False),
    Column("bytes_written", Long, nullable=False),
    Column("files_kept", Long, nullable=False),
    Column("files_rewritten", Long, nullable=False),
    Column("files_merged", Long, nullable=False),
    Column("files_written", Long, nullable=False),
    Column("keys", Long, nullable=False),
    Column("map_fill", Float, nullable=False),
    Column("shards", Integer, nullable=False),
    Column("seconds", JSON, nullable=False),
    Column("jobs", JSON, nullable=False),
    Column("first_tombstone", Long),
    Column("error", Text),
    _of_partition(),
    quote=True,
    sqlite_autoincrement=True,  # a pass's id never comes back
)
# The horizons of the tombstones that are left in a partition.
Index(
    "horizon",
    pass_.c.topic_id,
    pass_.c.partition,
    sqlite_where=text("first_tombstone IS NOT NULL"),
    postgresql_where=text("first_tombstone IS NOT NULL"),
)
Index("newest_pass", pass_.c.topic_id, pass_.c.id)

# What a pass did with each file that it changed: beside its row, which is read far more often.
pass_files = Table(
    "pass_files",
    metadata,
    Column("pass_id", Long, ForeignKey("pass.id", ondelete="CASCADE"), primary_key=True),
    Column("files", JSON, nullable=False),
)

# Who cleans: a row a service or command, kept after its end for `time-since-last-run-ms`.
cleaner = Table(
    "cleaner",
    metadata,
    Column("id", Text, primary_key=True),
    Column("by", Text, nullable=False),
    Column("started_ms", Long, nullable=False),
    Column("seen_ms", Long, nullable=False),
    Column("stopped_ms", Long),
)

# The committed offset of a consumer group: it has read all below.
consumer_offset = Table(
    "consumer_offset",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("topic_id", Long, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("committed", Long, nullable=False),
    Column("committed_ms", Long, nullable=False),
    _of_partition(),
)

# A process that consumes for a group. Past `until_ms` it is taken for dead.
group_member = Table(
    "group_member",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("member_id", Text, primary_key=True),
    Column("by", Text, nullable=False),
    Column("topics", JSON, nullable=False),  # the ids of those it consumes
    Column("until_ms", Long, nullable=False),
)

# Which member of a group reads a partition, as long as the member is alive.
group_claim = Table(
    "group_claim",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("topic_id", Long, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("member_id", Text, nullable=False),
    _of_partition(),
)
