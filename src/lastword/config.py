"""Settings: Kafka's names, defaults and bounds, each on one row of one table.

`TopicConfig` holds what a topic can set; `StoreConfig` what the store sets for the cleaner and,
through Kafka's server-side synonyms, as the default of every topic. A topic's effective value is
its own, else the store's, else the default here. Validation, `--help`, `docs/settings.md` and the
output of `configs describe` are all made from these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar

from annotated_types import Ge, Le
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from lastword.errors import InvalidConfigError, did_you_mean

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

COMPACT, DELETE = "compact", "delete"


class TimestampType(StrEnum):
    """Which time a record carries."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class Compression(StrEnum):
    """The codec of new files."""

    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def _parse_policy(value: object) -> frozenset[str]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple, set, frozenset)):
        raise ValueError("must be a list of 'compact' and 'delete'")
    policy = {str(word).strip().lower() for word in words} - {""}
    if policy - {COMPACT, DELETE}:
        raise ValueError("must be 'compact', 'delete', 'compact,delete', or empty (keep for ever)")
    return frozenset(policy)


def _refuse_fractions(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("must be a whole number")
    return value


Policy = Annotated[
    frozenset[str],
    BeforeValidator(_parse_policy),
    PlainSerializer(lambda policy: ",".join(sorted(policy)), return_type=str),
]
Whole = Annotated[int, BeforeValidator(_refuse_fractions)]
Long = Annotated[Whole, Ge(0), Le(LONG_MAX)]
PositiveLong = Annotated[Whole, Ge(1), Le(LONG_MAX)]
LongOrNone = Annotated[Whole, Ge(-1), Le(LONG_MAX)]  # -1 means: no limit
Ratio = Annotated[float, Ge(0), Le(1)]


def _setting(key: str, default: object, sentence: str, synonym: str = "") -> Any:
    return Field(
        default=default,
        alias=key,
        description=sentence,
        json_schema_extra={"synonym": synonym},
        validate_default=True,
    )


class _Settings(BaseModel):
    """What both tables have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)


_S = TypeVar("_S", bound=_Settings)


# fmt: off
class TopicConfig(_Settings):
    """The settings of one topic."""

    cleanup_policy: Policy = _setting(
        "cleanup.policy", COMPACT, synonym="log.cleanup.policy",
        sentence="What happens to old records: compact keeps the last record of every key, delete drops whole old segments, both do both, empty keeps all for ever.")
    min_cleanable_dirty_ratio: Ratio = _setting(
        "min.cleanable.dirty.ratio", 0.5, synonym="log.cleaner.min.cleanable.ratio",
        sentence="A partition is cleaned when its dirty ratio is strictly greater than this.")
    min_compaction_lag_ms: Long = _setting(
        "min.compaction.lag.ms", 0, synonym="log.cleaner.min.compaction.lag.ms",
        sentence="How long at least a record stays uncleaned after its timestamp.")
    max_compaction_lag_ms: PositiveLong = _setting(
        "max.compaction.lag.ms", LONG_MAX, synonym="log.cleaner.max.compaction.lag.ms",
        sentence="How long at most a record waits to be cleaned, whatever the dirty ratio; also caps segment.ms.")
    delete_retention_ms: Long = _setting(
        "delete.retention.ms", 86_400_000, synonym="log.cleaner.delete.retention.ms",
        sentence="How long a tombstone stays readable after the pass that first covered it.")
    segment_bytes: Annotated[Whole, Ge(1_048_576), Le(INT_MAX)] = _setting(
        "segment.bytes", 268_435_456, synonym="log.segment.bytes",
        sentence="The active segment is rolled before it grows beyond this; cleaned files are merged up to it.")
    segment_ms: PositiveLong = _setting(
        "segment.ms", 604_800_000, synonym="log.roll.ms",
        sentence="The active segment is rolled when its first record is older than this.")
    segment_jitter_ms: Long = _setting(
        "segment.jitter.ms", 0, synonym="log.roll.jitter.ms",
        sentence="Up to this much is taken off segment.ms, another amount for each segment, so that not all roll at once.")
    retention_ms: LongOrNone = _setting(
        "retention.ms", 604_800_000, synonym="log.retention.ms",
        sentence="With delete: a segment goes when its newest record is older than this; -1 for never.")
    retention_bytes: LongOrNone = _setting(
        "retention.bytes", -1, synonym="log.retention.bytes",
        sentence="With delete: the oldest segments of a partition go while at least this much is left; -1 for never.")
    file_delete_delay_ms: Long = _setting(
        "file.delete.delay.ms", 3_600_000, synonym="log.segment.delete.delay.ms",
        sentence="How long the bytes of a retired file stay, so that readers can finish.")
    message_timestamp_type: TimestampType = _setting(
        "message.timestamp.type", TimestampType.CREATE_TIME, synonym="log.message.timestamp.type",
        sentence="CreateTime keeps the writer's timestamps, LogAppendTime stamps records when they are appended.")
    message_timestamp_before_max_ms: Long = _setting(
        "message.timestamp.before.max.ms", LONG_MAX, synonym="log.message.timestamp.before.max.ms",
        sentence="With CreateTime: a record further in the past than this is refused.")
    message_timestamp_after_max_ms: Long = _setting(
        "message.timestamp.after.max.ms", 3_600_000, synonym="log.message.timestamp.after.max.ms",
        sentence="With CreateTime: a record further in the future than this is refused.")
    compression_type: Compression = _setting(
        "compression.type", Compression.LZ4, synonym="",
        sentence="The codec of new files, written by appends and by the cleaner alike.")

    what: ClassVar[str] = "topic setting"

    @property
    def policy(self) -> str:
        """The cleanup.policy as it is written; empty if all is kept."""
        return ",".join(sorted(self.cleanup_policy))

    @property
    def is_compact(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def is_delete(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """When the active segment is due: the maximum lag caps `segment.ms`, as Kafka."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compact else self.segment_ms

    @model_validator(mode="after")
    def _lags_in_order(self) -> Self:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ValueError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) must not be greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})")
        return self


class StoreConfig(_Settings):
    """The settings of the store itself: the cleaner's, and Kafka's other broker settings."""

    log_cleaner_enable: bool = _setting(
        "log.cleaner.enable", True,
        sentence="Off: the cleaner service neither cleans nor expires topics whose policy has compact.")
    log_cleaner_dedupe_buffer_size: Annotated[Whole, Ge(1_048_577), Le(LONG_MAX)] = _setting(
        "log.cleaner.dedupe.buffer.size", 134_217_728,
        sentence="Memory for the maps of last offsets, shared by all tasks that run at the same time.")
    log_cleaner_io_max_bytes_per_second: Annotated[float, Ge(1)] = _setting(
        "log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308,
        sentence="The cleaner reads and writes no more than this on average, over all tasks.")
    log_cleaner_backoff_ms: Long = _setting(
        "log.cleaner.backoff.ms", 15_000,
        sentence="How long the cleaner service sleeps when there was nothing to clean.")
    log_retention_check_interval_ms: PositiveLong = _setting(
        "log.retention.check.interval.ms", 300_000,
        sentence="How often the cleaner service expires old segments of topics without compact.")
    offsets_retention_minutes: Annotated[Whole, Ge(1), Le(INT_MAX)] = _setting(
        "offsets.retention.minutes", 10_080,
        sentence="A consumer group that has not committed for this long no longer holds tombstones back.")
    producer_id_expiration_ms: Annotated[Whole, Ge(1), Le(INT_MAX)] = _setting(
        "producer.id.expiration.ms", 86_400_000,
        sentence="After this long without an append, a producer that was not closed is forgotten.")

    what: ClassVar[str] = "store setting"
# fmt: on


@dataclass(frozen=True)
class Setting:
    """One setting, as `describe` shows it."""

    key: str
    value: str
    default: str
    source: str  # who set it: "topic", "store" or "default"
    bounds: str
    sentence: str
    choices: tuple[str, ...] = ()  # if only some values can be

    @property
    def is_overridden(self) -> bool:
        return self.source != "default"


def topic_config(
    overrides: Mapping[str, object], store_overrides: Mapping[str, object] | None = None
) -> TopicConfig:
    """The effective settings of a topic, validated: its own, else the store's, else the default."""
    refuse_unknown(overrides, TopicConfig)
    inherited = {SYNONYMS[k]: v for k, v in (store_overrides or {}).items() if k in SYNONYMS}
    return _validated(TopicConfig, {**inherited, **overrides})


def store_config(overrides: Mapping[str, object]) -> StoreConfig:
    """The store's settings, validated, together with the topic defaults among them."""
    refuse_unknown(overrides, StoreConfig)
    for_topics = {SYNONYMS[k]: v for k, v in overrides.items() if k in SYNONYMS}
    _validated(TopicConfig, for_topics, spelled={v: k for k, v in SYNONYMS.items()})
    return _validated(StoreConfig, {k: v for k, v in overrides.items() if k not in SYNONYMS})


def refuse_unknown(keys: Iterable[str], model: type[TopicConfig] | type[StoreConfig]) -> None:
    """Raise for a setting that the model does not have; name the nearest that it has."""
    known = TOPIC_KEYS if model is TopicConfig else STORE_KEYS
    for key in keys:
        if key not in known:
            raise InvalidConfigError(f"unknown {model.what} {key!r}{did_you_mean(key, known)}")


def describe_topic(
    overrides: Mapping[str, object], store_overrides: Mapping[str, object]
) -> list[Setting]:
    """Every setting of a topic: value, default, who set it, bounds, sentence."""
    values = to_strings(topic_config(overrides, store_overrides))
    inherited = {SYNONYMS[k] for k in store_overrides if k in SYNONYMS}
    return [
        _described(
            key,
            field,
            values[key],
            "topic" if key in overrides else "store" if key in inherited else "default",
        )
        for key, field in TOPIC_KEYS.items()
    ]


def describe_store(overrides: Mapping[str, object]) -> list[Setting]:
    """Every setting of the store, the defaults for its topics included."""
    own = to_strings(store_config(overrides))
    for_topics = to_strings(topic_config({}, overrides))
    return [
        _described(
            key,
            field,
            for_topics[SYNONYMS[key]] if key in SYNONYMS else own[key],
            "store" if key in overrides else "default",
        )
        for key, field in STORE_KEYS.items()
    ]


def to_strings(config: _Settings) -> dict[str, str]:
    """The settings as the catalog keeps them and `describe` prints them."""
    return {k: _text(v) for k, v in config.model_dump(by_alias=True).items()}


def bounds_of(field: FieldInfo) -> str:
    """The bounds of a setting in words: '0 to 1', 'at least 1', 'compact, delete'."""
    if isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        return ", ".join(field.annotation)
    if field.alias == "cleanup.policy":
        return f"{COMPACT}, {DELETE}, both, or empty"
    if field.annotation is bool:
        return "true, false"
    low = next((m.ge for m in field.metadata if isinstance(m, Ge)), None)
    high = next((m.le for m in field.metadata if isinstance(m, Le)), None)
    return f"at least {low}" if high in (None, LONG_MAX) else f"{low} to {high}"


def _choices(field: FieldInfo) -> tuple[str, ...]:
    if isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        return tuple(field.annotation)
    if field.alias == "cleanup.policy":
        return (COMPACT, DELETE, f"{COMPACT},{DELETE}", "")
    return ("true", "false") if field.annotation is bool else ()


def _described(key: str, field: FieldInfo, value: str, source: str) -> Setting:
    return Setting(
        key=key,
        value=value,
        default=to_strings(_DEFAULTS[field.alias or ""])[field.alias or ""],
        source=source,
        bounds=bounds_of(field),
        sentence=field.description or "",
        choices=_choices(field),
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _validated(
    model: type[_S], values: Mapping[str, object], spelled: Mapping[str, str] | None = None
) -> _S:
    """The model from these values; an error names the setting as the caller `spelled` it."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        problem = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise InvalidConfigError(problem) from None
        key = str(first["loc"][0])
        key = (spelled or {}).get(key, key)
        raise InvalidConfigError(f"{key}={first['input']}: {_plain(problem)}") from None


def _plain(problem: str) -> str:
    problem = problem.replace("Input should be", "must be")
    return problem if problem.startswith("must") else f"is not valid: {problem}"


def _by_key(model: type[_Settings]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _synonym(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra["synonym"]) if isinstance(extra, dict) else ""


TOPIC_KEYS: Mapping[str, FieldInfo] = _by_key(TopicConfig)
# A store-wide synonym → the topic setting whose default it is.
SYNONYMS = {_synonym(field): key for key, field in TOPIC_KEYS.items() if _synonym(field)}
STORE_KEYS: Mapping[str, FieldInfo] = {
    **_by_key(StoreConfig),
    **{synonym: TOPIC_KEYS[key] for synonym, key in SYNONYMS.items()},
}
_DEFAULTS: Mapping[str, _Settings] = {
    **dict.fromkeys(TOPIC_KEYS, TopicConfig()),
    **dict.fromkeys(_by_key(StoreConfig), StoreConfig()),
}
