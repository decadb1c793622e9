"""The JetStream stream of the log: its configuration, as code, and what must hold before a publish."""

from __future__ import annotations

from typing import Any

from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from outbox_relay.messages import STREAM_SUBJECTS
from outbox_relay.problems import PublishingStopped
from outbox_relay.settings import Settings


def wanted_configuration(settings: Settings, first_version: int) -> StreamConfig:
    """A stream whose next message gets the sequence `first_version`.

    Limits retention because the other kinds forget ids and messages with their consumers (TRAPS, NATS); no limit on
    number or bytes because reaching one would silently drop events that a consumer still needs.
    """
    return StreamConfig(
        name=settings.log_stream_name,
        description="The log of Berth: stream sequence = version",
        subjects=list(STREAM_SUBJECTS),
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_msgs=-1,
        max_bytes=-1,
        max_age=settings.log_stream_age_seconds_max,
        num_replicas=settings.log_stream_replicas,
        duplicate_window=_duplicate_window_seconds(settings),
        allow_atomic=True,
        allow_direct=True,
        first_seq=first_version,
    )


def require_safe_configuration(found: StreamConfig, settings: Settings) -> None:
    """Raise `PublishingStopped` unless a stream configured as `found` can carry the log without losing any of it."""
    dangers = dangers_of(found, settings)
    if dangers:
        raise PublishingStopped(
            "stream_configuration",
            f"the stream {settings.log_stream_name} is not fit for the log: {'; '.join(dangers)}. "
            "Correct it with `nats stream edit`, or make it anew from Postgres with `berth events rebuild`.",
        )


def dangers_of(found: StreamConfig, settings: Settings) -> list[str]:
    """How a stream configured as `found` could lose some of the log, in words."""
    exact: list[tuple[str, Any, Any]] = [
        ("retention", found.retention, RetentionPolicy.LIMITS),
        ("storage", found.storage, StorageType.FILE),
        ("subjects", tuple(found.subjects or ()), STREAM_SUBJECTS),
        ("allow_atomic", bool(found.allow_atomic), True),
        ("no_ack", bool(found.no_ack), False),
        ("sealed", bool(found.sealed), False),
    ]
    dangers = [f"{name} is {_word(value)}, not {_word(wanted)}" for name, value, wanted in exact if value != wanted]
    for name, limit in (
        ("max_msgs", found.max_msgs),
        ("max_bytes", found.max_bytes),
        ("max_msgs_per_subject", found.max_msgs_per_subject),
    ):
        if limit is not None and limit > 0:
            dangers.append(f"{name} is {limit}, not unlimited")
    if (found.num_replicas or 1) < settings.log_stream_replicas:
        dangers.append(f"it has {found.num_replicas} replicas, not {settings.log_stream_replicas}")
    wanted_age, age = settings.log_stream_age_seconds_max, found.max_age or 0
    if age and (not wanted_age or age < wanted_age):
        dangers.append(f"max_age is {age:.0f} s, not {wanted_age:.0f} s")
    if (found.duplicate_window or 0) < _duplicate_window_seconds(settings):
        dangers.append(f"the duplicate window is {found.duplicate_window or 0:.0f} s")
    if found.mirror or found.sources or found.subject_transform:
        dangers.append("it mirrors, sources or transforms")
    return dangers


def _duplicate_window_seconds(settings: Settings) -> float:
    # NATS refuses a window longer than the messages live.
    age = settings.log_stream_age_seconds_max
    window = settings.log_stream_duplicate_window_seconds
    return min(window, age) if age else window


def _word(value: object) -> str:
    return str(getattr(value, "value", value))


def first_version_to_publish(last_published: int, head: int, lowest_kept: int | None) -> int:
    """The version with which publishing goes on. Raises `PublishingStopped` where nothing right can follow.

    `last_published` is the stream's last sequence, `head` the log's newest version, read after it; `lowest_kept` the
    oldest version the log still has, None if it keeps none.
    """
    if last_published > head:
        raise PublishingStopped(
            "nats_ahead",
            f"NATS is ahead of Postgres: the stream ends at version {last_published}, the log at {head}; Postgres was "
            "restored, or another publisher wrote to the stream, so versions would be used twice. Check it, then raise the log's "
            "versions and rebuild the stream with `berth events rebuild --accept-timeline`.",
        )
    following = last_published + 1
    if lowest_kept is not None and lowest_kept > following:
        raise PublishingStopped(
            "gap",
            f"the stream ends at version {last_published} and the log begins at {lowest_kept}; the versions between "
            "are no longer kept. Make the stream anew from Postgres with `berth events rebuild`.",
        )
    return following
