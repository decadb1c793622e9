"""Rebuilds or completes the stream of the log from Postgres.

Relays may keep running. The first version of the stream is stored in Postgres (`log_stream`) before the old stream is
deleted, so this command and a relay create the same stream. Every publish names the version it follows: NATS refuses
all publishers but one, and the others wait. After an interruption the command is repeated and continues from the part
that is correct.

Consumers lose their durable consumer with the old stream and receive earlier events again; consumers that store their
position in Postgres, as the worker does, receive few of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from nats.js.api import StreamInfo

from outbox_relay.continuity import first_difference
from outbox_relay.link import NatsLink
from outbox_relay.metrics import Metrics
from outbox_relay.postgres import bounded_address
from outbox_relay.problems import RelayProblem, ServerUnavailable
from outbox_relay.publishing import Publisher, Session
from outbox_relay.reading import LogReader, LogStatus
from outbox_relay.settings import Settings
from outbox_relay.state import LogHead, RelayState
from outbox_relay.stream import dangers_of

SAMPLES_MAX = 500
MAKING_TRIES_MAX = 5
# Longer than what PostgreSQL gives a statement: events that move to other versions may be many.
ANSWER_SECONDS_MAX = 25.0


class NothingToDo(RelayProblem):
    """The stream holds what was asked for."""


@dataclass(frozen=True)
class Accepted:
    """The effect of accepting a new timeline: events moved to new versions, and versions that were published and are lost.

    `skipped`: these versions, and those above them that a feed may have delivered before NATS had them.
    """

    moved: int
    lost: int
    skipped: int


@dataclass(frozen=True)
class Rebuilt:
    """What was done. `because`: why the stream was made anew; None: it was right so far and was completed."""

    stream: str
    first_version: int
    last_version: int
    because: str | None
    published: int
    stubs: int
    accepted: Accepted | None
    seconds: float


@dataclass(frozen=True)
class Order:
    """What an operator asks for. `anew`: make the stream anew although it looks right.

    `highest_version`: the highest version that any consumer is known to have read.
    """

    first_version: int | None = None
    accept_timeline: bool = False
    anew: bool = False
    highest_version: int = 0


async def rebuild(settings: Settings, order: Order, progress: Callable[[int, int], None] = lambda *_: None) -> Rebuilt:
    """Return when the stream holds the log, from the version ordered to the newest one now.

    `progress` gets the version stored last and the one to be reached. Raises `NothingToDo`; `RelayProblem` where it would
    do harm or cannot be; `ServerUnavailable` when a server is lost: repeat it then.
    """
    began = time.monotonic()
    async with (
        LogReader.connected(
            bounded_address(settings.database_url, "rebuilding"), ANSWER_SECONDS_MAX, during_restore=True
        ) as reader,
        NatsLink.connected(settings) as link,
        reader.sole_rebuild() as is_alone,
    ):
        if not is_alone:
            raise RelayProblem("another rebuild of the stream is under way on this database")
        await _require_export(reader, link)
        accepted = await _settle_timeline(reader, link, order)
        status = await reader.status()
        first = _first_version(status, order)
        because = await _why_anew(settings, reader, link, await link.stream(), first, order)
        stream = await link.stream()
        if because is None and stream is not None and stream.state.last_seq >= status.head and accepted is None:
            raise NothingToDo(
                f"nothing is to be done: the stream {settings.log_stream_name} holds the log from version "
                f"{stream.state.first_seq} to {stream.state.last_seq}; --anew makes it anew nevertheless"
            )
        if order.anew and stream is not None and await _has_other_history(reader, link, stream, status):
            await reader.open_epoch()
        await reader.order_stream(first)
        if because is not None:
            await _make_anew(link, first)
        metrics = Metrics()
        publisher = Publisher(
            settings, metrics, RelayState(), LogHead(), lambda version: progress(version, status.head)
        )
        await Session(publisher, reader, link).reach(status.head)
        made = await link.stream()
        return Rebuilt(
            stream=settings.log_stream_name,
            first_version=first if made is None else made.state.first_seq,
            last_version=status.head,
            because=because,
            published=metrics.published_count(),
            stubs=metrics.stub_count(),
            accepted=accepted,
            seconds=time.monotonic() - began,
        )


async def _require_export(reader: LogReader, link: NatsLink) -> None:
    """Raise `RelayProblem` while the stream is the only witness of the lost interval of a restore."""
    stream = await link.stream()
    if stream is not None and stream.state.last_seq and await reader.awaits_export():
        raise RelayProblem(
            "the stream is the only witness of what the restore has lost, and a rebuild may delete it: run"
            " `berth restore export` first"
        )


async def _settle_timeline(reader: LogReader, link: NatsLink, order: Order) -> Accepted | None:
    """Accept this Postgres as the log's, if that was ordered and is due. Raises `RelayProblem` if it is due only."""
    stream = await link.stream()
    published = 0 if stream is None else stream.state.last_seq
    status = await reader.read_status()
    why = await _why_not_one_history(reader, link, published, status, order)
    if why is None:
        return None
    if not order.accept_timeline:
        raise RelayProblem(
            f"{why}; versions that the log has lost may have been published. Check that this is the Postgres you "
            "want, then use --accept-timeline, which gives none of those versions to another event"
        )
    diverged = status.head + 1 if stream is None else await first_difference(reader, link, stream, status)
    lost = max(0, published - diverged + 1)
    read = max(published, order.highest_version)
    spare = lost > 0 or read > published or await reader.is_restored()
    moved, skipped = await reader.accept_timeline(diverged, read, spare=spare)
    return Accepted(moved, lost, skipped)


async def _why_not_one_history(
    reader: LogReader, link: NatsLink, published: int, status: LogStatus, order: Order
) -> str | None:
    """Why the log may have lost what NATS has up to `published`, in words; None if it has not."""
    if status.is_foreign:
        return f"the log was written by Postgres {status.written_by} and this one is {status.leader_id}"
    if published > status.head:
        return f"NATS is ahead of Postgres: the stream ends at version {published}, the log at {status.head}"
    if order.highest_version > status.head:
        return f"version {order.highest_version} was read by a consumer, and the log ends at {status.head}"
    if published == 0 or order.anew:
        return None
    other, own = await link.event_id_at(published), await reader.event_id_at(published)
    # Without an id it is the message of another publisher, and not of another history of the log.
    if not other or own is None or other == own:
        return None
    # Accepted already, by `berth restore run` or a run that was interrupted before it made the stream anew: nothing moves twice.
    if await reader.is_skipped(published):
        return None
    return (
        f"NATS has another history: the stream ends with event {other} at version {published}, where the log has {own}"
    )


def _first_version(status: LogStatus, order: Order) -> int:
    if status.head == 0:
        raise NothingToDo("nothing is to be done: the log holds no event yet")
    oldest = status.oldest_publishable
    if order.first_version is None:
        return oldest
    if not oldest <= order.first_version <= status.head:
        raise RelayProblem(
            f"the log holds versions {oldest} to {status.head}, so --from {order.first_version} cannot be"
        )
    return order.first_version


async def _has_other_history(reader: LogReader, link: NatsLink, stream: StreamInfo, status: LogStatus) -> bool:
    """Whether consumers may have got other events from the stream than the log has, under versions that the log keeps."""
    return await first_difference(reader, link, stream, status) <= stream.state.last_seq


async def _why_anew(
    settings: Settings, reader: LogReader, link: NatsLink, found: StreamInfo | None, first: int, order: Order
) -> str | None:
    """Why what NATS has cannot stay, in words; None if it is right as far as it goes."""
    if found is None:
        return "there was none"
    if order.anew:
        return "that was asked for"
    dangers = dangers_of(found.config, settings)
    if dangers:
        return f"its configuration was not fit: {'; '.join(dangers)}"
    state = found.state
    skipped_to = (await reader.read_status()).skipped_to
    if state.first_seq < skipped_to:
        return f"it began at version {state.first_seq}, and versions up to {skipped_to} are skipped"
    if state.first_seq > first or (order.first_version is not None and state.first_seq < first):
        return f"it began at version {state.first_seq}"
    if state.messages != state.last_seq - state.first_seq + 1:
        return f"it held {state.messages} messages for {state.last_seq - state.first_seq + 1} versions"
    # A stream may keep what the log does not any more.
    begin = max(state.first_seq, first)
    step = max(1, (state.last_seq - begin + 1) // SAMPLES_MAX)
    for version in {*range(begin, state.last_seq + 1, step), *([state.last_seq] if state.last_seq >= begin else [])}:
        if await link.event_id_at(version) != await reader.event_id_at(version):
            return f"it held another event at version {version}"
    return None


async def _make_anew(link: NatsLink, first: int) -> None:
    """Delete the stream and make it; again if a relay, which read an older word, was faster with another beginning."""
    for _ in range(MAKING_TRIES_MAX):
        await link.delete_stream()
        await link.make_stream(first)
        made = await link.stream()
        if made is not None and made.state.first_seq == first:
            return
    raise ServerUnavailable("nats", f"the stream did not begin at version {first}; another process keeps recreating it")
