"""`berth events rebuild`: the stream on NATS, made anew from the log in Postgres."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import structlog
from pydantic import ValidationError

from berth.cli.endings import UNREACHABLE, USAGE, Refused
from berth.cli.session import Session
from outbox_relay.problems import RelayProblem, ServerUnavailable
from outbox_relay.rebuilding import NothingToDo, Order, Rebuilt, rebuild
from outbox_relay.settings import Settings


def rebuild_stream(session: Session, nats_url: str, order: Order) -> None:
    """Do it, showing how far it is on stderr, and say what was done. Raises `Refused` where it cannot be done."""
    try:
        settings = Settings(database_url=session.database_url(), nats_url=nats_url)
    except ValidationError as error:
        names = ", ".join(f"BERTH_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        raise Refused(f"unusable environment: {names}", code="usage", exit_code=USAGE) from error
    if session.settings.nats_url is None:
        # The local stack's: each of its servers keeps each message.
        settings = settings.model_copy(update={"log_stream_replicas": 1 + nats_url.count(",")})
    with session.errors.status("looking at the stream") as status:

        def show(version: int, head: int) -> None:
            status.update(f"version {version} of {head} is on NATS")

        try:
            with _quiet():
                done = asyncio.run(rebuild(settings, order, show))
        except NothingToDo as nothing:
            raise Refused(str(nothing), code="nothing_to_do") from nothing
        except RelayProblem as problem:
            raise Refused(str(problem), code="cannot_rebuild") from problem
        except ServerUnavailable as lost:
            name = {"nats": "NATS", "postgres": "PostgreSQL"}[lost.server]
            detail = f"{name} cannot be used: {lost.why}; repeat the command, it goes on where it stopped"
            raise Refused(detail, code=f"{lost.server}_unreachable", exit_code=UNREACHABLE) from lost
    if session.json:
        session.console.print_json(data=asdict(done))
        return
    for line in _lines(done):
        session.console.print(line, markup=False, soft_wrap=True)


def _lines(done: Rebuilt) -> list[str]:
    lines = []
    if done.accepted is not None:
        moved, lost = done.accepted.moved, done.accepted.lost
        skipped = f"; {done.accepted.skipped} versions are skipped" if done.accepted.skipped else ""
        lines.append(
            f"this Postgres writes the log from now on; {lost} versions are lost, {moved} events moved{skipped}"
        )
    if done.because is None:
        lines.append(f"the stream {done.stream} was right so far")
    else:
        lines.append(f"the stream {done.stream} was made anew, because {done.because}")
    stubs = f", {done.stubs} of them as stubs" if done.stubs else ""
    lines.append(
        f"it holds versions {done.first_version} to {done.last_version}; {done.published} published here{stubs} "
        f"in {done.seconds:.1f} s"
    )
    return lines


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the relay's own lines, which are for its log; what matters here is in the result."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
