"""`berth webhook`: webhooks and their deliveries, of a tenant or, with an admin key, of the operators."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from berth.cli.endings import USAGE, Refused
from berth.cli.printing import Column, show_list, show_one
from berth.cli.session import Session, command
from berth.cli.times import moment

app = typer.Typer(no_args_is_help=True, help="Webhooks: endpoints that receive events, and the deliveries to them.")
WebhookArgument = Annotated[UUID, typer.Argument(metavar="WEBHOOK", help="the webhook's id")]
KeyOption = Annotated[str | None, typer.Option(help="repeat an earlier request with its key")]
TypeOption = Annotated[
    list[str] | None, typer.Option("--type", help="only events of this type, or family (`provisioning.*`); repeatable")
]
DescriptionOption = Annotated[str | None, typer.Option(help="a sentence for people")]
LISTED: list[Column] = [
    ("id", lambda w: w.id), ("url", lambda w: w.url), ("types", lambda w: w.types or "all"), ("state", lambda w: w.state),
    ("failing since", lambda w: w.failing_since),
]  # fmt: skip
SHOWN: list[Column] = [
    ("id", lambda w: w.id), ("url", lambda w: w.url), ("description", lambda w: w.description),
    ("types", lambda w: w.types or "all"), ("signing", lambda w: w.signing),
    ("public keys", lambda w: w.public_keys or None), ("state", lambda w: w.state),
    ("disabled because", lambda w: w.disabled_reason), ("disabled", lambda w: w.disabled_at),
    ("failing since", lambda w: w.failing_since), ("position", lambda w: w.position),
    ("missed before", lambda w: w.missed_before), ("created", lambda w: w.created_at), ("secret", lambda w: w.secret),
]  # fmt: skip
DELIVERIES: list[Column] = [
    ("number", lambda d: d.number), ("event type", lambda d: d.event_type), ("event", lambda d: d.event_id),
    ("version", lambda d: d.version), ("state", lambda d: d.state), ("attempts", lambda d: d.attempts),
    ("answer", lambda d: d.response_status or d.error), ("last", lambda d: d.attempted_at),
    ("next", lambda d: d.next_attempt_at),
]  # fmt: skip
DELIVERY: list[Column] = [
    *DELIVERIES, ("took ms", lambda d: d.duration_ms), ("answer's body", lambda d: d.response_excerpt),
]  # fmt: skip
REPLAYED: list[Column] = [
    ("sent again", lambda r: r.replayed), ("left", lambda r: r.left), ("not kept any more", lambda r: r.truncated),
]  # fmt: skip


class Signing(StrEnum):
    """How messages are signed."""

    HMAC = "hmac"
    ED25519 = "ed25519"


class State(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@command(app, "create")
def create(
    session: Session,
    url: Annotated[str, typer.Argument(help="an https:// URL")],
    types: TypeOption = None,
    description: DescriptionOption = None,
    signing: Annotated[
        Signing, typer.Option(help="hmac: a shared secret; ed25519: a key pair, you receive the public key")
    ] = Signing.HMAC,
    idempotency_key: KeyOption = None,
) -> None:
    """Send events to a URL from now on. The secret is shown once: store it."""
    with session.client() as client:
        made = client.create_webhook(
            url=url, types=types, description=description, signing=signing.value, idempotency_key=idempotency_key
        )
        show_one(session, made, SHOWN)


@command(app, "list")
def list_(session: Session) -> None:
    """List the webhooks."""
    with session.client() as client:
        show_list(session, client.iterate_webhooks(), LISTED)


@command(app, "show")
def show(session: Session, webhook: WebhookArgument) -> None:
    """Show one webhook."""
    with session.client() as client:
        show_one(session, client.get_webhook(webhook), SHOWN)


@command(app, "change")
def change(
    session: Session,
    webhook: WebhookArgument,
    url: Annotated[str | None, typer.Option(help="another URL")] = None,
    types: TypeOption = None,
    all_types: Annotated[bool, typer.Option("--all-types", help="events of every type")] = False,
    description: DescriptionOption = None,
    enable: Annotated[bool | None, typer.Option("--enable/--disable", help="whether events are sent")] = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Change the given properties of a webhook. After enabling, it receives the events from then on."""
    if all_types and types:
        raise Refused("give --type or --all-types, not both", code="usage", exit_code=USAGE)
    with session.client() as client:
        changed = client.change_webhook(
            webhook,
            url=url,
            types=[] if all_types else types or None,
            description=description,
            state=None if enable is None else "enabled" if enable else "disabled",
            idempotency_key=idempotency_key,
        )
        show_one(session, changed, SHOWN)


@command(app, "rotate")
def rotate(
    session: Session,
    webhook: WebhookArgument,
    overlap_seconds: Annotated[
        int | None, typer.Option(min=0, help="how long the older keys also sign; default: a day")
    ] = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Sign with a new key. Its secret is shown once: store it."""
    with session.client() as client:
        rotated = client.rotate_webhook(webhook, overlap_seconds=overlap_seconds, idempotency_key=idempotency_key)
        show_one(session, rotated, SHOWN)


@command(app, "test")
def send_test(session: Session, webhook: WebhookArgument, idempotency_key: KeyOption = None) -> None:
    """Send a test message; `berth webhook deliveries` shows its result."""
    with session.client() as client:
        show_one(session, client.send_test_message(webhook, idempotency_key=idempotency_key), DELIVERY)


@command(app, "deliveries")
def deliveries(
    session: Session,
    webhook: WebhookArgument,
    number: Annotated[int | None, typer.Argument(help="show only this delivery, with details")] = None,
    state: Annotated[State | None, typer.Option(help="only these")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="how many of the newest")] = 50,
) -> None:
    """List a webhook's deliveries with their state, newest first."""
    with session.client() as client:
        if number is not None:
            show_one(session, client.get_delivery(webhook, number), DELIVERY)
            return
        found = client.list_deliveries(webhook, state=None if state is None else state.value, limit=limit)
        show_list(session, found.items, DELIVERIES)


@command(app, "replay")
def replay(
    session: Session,
    webhook: WebhookArgument,
    number: Annotated[int | None, typer.Argument(help="this delivery, in any state")] = None,
    since: Annotated[str | None, typer.Option(help="all deliveries that failed at this time or later")] = None,
    idempotency_key: KeyOption = None,
) -> None:
    """Send one message again, or all that failed since a time."""
    if (number is None) == (since is None):
        raise Refused("give a delivery's number, or --since", code="usage", exit_code=USAGE)
    begin = moment(since, "--since")
    with session.client() as client:
        if number is not None:
            show_one(session, client.replay_delivery(webhook, number, idempotency_key=idempotency_key), DELIVERY)
        elif begin is not None:
            replayed = client.replay_failed_deliveries(webhook, since=begin, idempotency_key=idempotency_key)
            show_one(session, replayed, REPLAYED)


@command(app, "delete")
def delete(session: Session, webhook: WebhookArgument, idempotency_key: KeyOption = None) -> None:
    """Delete a webhook and its keys; nothing more is sent to it."""
    with session.client() as client:
        client.delete_webhook(webhook, idempotency_key=idempotency_key)
