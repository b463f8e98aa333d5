"""The catalog's tables: the only truth about which files make up the log.

Offsets are inclusive where they are called `last_…`, and bounds otherwise. A file is live from the
commit that added it to the commit that retired it; its bytes outlive it by `file.delete.delay.ms`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)

SCHEMA_VERSION = 1

metadata = MetaData()

Long = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows only by INTEGER


def _serial() -> Column[int]:
    return Column("id", Long, primary_key=True, autoincrement=True)


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
    Column("active_base", Long, nullable=False, default=0),
    Column("active_bytes", Long, nullable=False, default=0),
    Column("active_first_ms", Long),
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
    ForeignKeyConstraint(
        ["topic_id", "partition"],
        ["partition.topic_id", "partition.partition"],
        ondelete="CASCADE",
    ),
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
    Column("kind", Text, nullable=False),  # append, roll, expire, config, create, delete
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
