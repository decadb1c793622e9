"""Events become messages: owner, types, signature, retries, and the delivery record."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from orchestrator.webhooks.rules import ATTEMPTS_MAX, RETRY_AFTER_SECONDS_MAX, SCHEDULE_SECONDS, pause_seconds
from outbox_relay.messages import SELECT_EVENTS
from tests.api.calling import problem
from tests.webhooks.desk import Desk, numbers
from tests.webhooks.receivers import Received, Receiver, answers, receiving


def verified(secret: str, received: Received) -> Any:
    """What the standard's own library makes of it."""
    return Webhook(secret).verify(received.body, dict(received.headers))


def verify_ed25519(public_key: str, received: Received) -> None:
    """Raises InvalidSignature unless one of the signatures is by this key."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_")))
    signed = f"{received.message_id}.{received.headers['webhook-timestamp']}.".encode() + received.body
    for signature in received.headers["webhook-signature"].split(" "):
        version, _, text = signature.partition(",")
        assert version == "v1a"
        try:
            key.verify(base64.b64decode(text), signed)
            return
        except InvalidSignature:
            continue
    raise InvalidSignature


def test_a_tenant_gets_its_own_events_and_an_operator_all(desk: Desk, receiver: Receiver) -> None:
    one, other = desk.tenant(), desk.tenant()
    desk.append(one)
    with receiving() as (of_operators,):
        mine = desk.webhook(one, receiver)
        theirs = desk.webhook(desk.admin, of_operators, types=["node.online"])
        desk.append(one, 2)
        desk.append(other)
        head = desk.append(None)
        desk.dispatch()
        events = [message.document for message in receiver.received if message.document["type"] == "berth.node.online"]
        assert sorted(event["data"]["n"] for event in events) == [1, 2]
        assert {event["tenantid"] for event in events} == {one.tenant_id}
        told = sorted(int(message.document["version"]) for message in of_operators.received)
        assert told == [head - 3, head - 2, head - 1, head]
        assert all(verified(theirs["secret"], message) for message in of_operators.received)
    for message in receiver.received:
        assert verified(mine["secret"], message) == message.document
        assert message.line == "POST /hook?token=s3cret HTTP/1.1"
        assert message.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert message.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert message.message_id == message.document["id"]
    with pytest.raises(WebhookVerificationError):
        verified(theirs["secret"], receiver.received[0])


def test_the_body_is_the_document_that_the_relay_publishes(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    desk.webhook(tenant, receiver, types=["node.*"])
    version = desk.append(tenant)
    desk.dispatch()
    (message,) = receiver.received
    published = desk.database.execute(SELECT_EVENTS, {"after": version - 1, "limit": 1}).fetchone()
    assert published is not None
    expected, told = orjson.loads(published[5]), message.document
    assert datetime.fromisoformat(told.pop("time")) == datetime.fromisoformat(expected.pop("time"))
    assert told == expected


def test_types_choose(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    desk.webhook(tenant, receiver, types=["provisioning.releasing.*", "node.online"])
    for event_type in ("node.offline", "provisioning.active", "provisioning.releasing.requested", "node.online"):
        desk.append(tenant, event_type=event_type)
    desk.dispatch()
    told = {message.document["type"] for message in receiver.received}
    assert told == {"berth.provisioning.releasing.requested", "berth.node.online"}


def test_a_message_that_fails_comes_again_as_it_was_and_by_the_schedule(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500, body=b"out of \x00 order"), answers(200))
    desk.append(tenant)
    desk.dispatch()
    (failed,) = desk.deliveries(tenant, webhook)
    assert (failed["state"], failed["attempts"], failed["response_status"]) == ("pending", 1, 500)
    assert failed["response_excerpt"] == "out of \ufffd order"
    assert tenant.get(f"/webhooks/{webhook['id']}")["failing_since"] is not None
    pause = desk.one(
        "select extract(epoch from next_attempt_at - clock_timestamp())::float8 from webhook_deliveries where webhook_id = %s",
        webhook["id"],
    )
    assert 0 < pause < SCHEDULE_SECONDS[1] * 1.2
    desk.due_now(webhook["id"])
    desk.dispatch()
    first, second = receiver.received
    assert (first.body, first.message_id) == (second.body, second.message_id)
    assert verified(webhook["secret"], second)
    (done,) = desk.deliveries(tenant, webhook)
    assert (done["state"], done["attempts"], done["next_attempt_at"]) == ("succeeded", 2, None)
    assert [attempt["response_status"] for attempt in done["history"]] == [500, 200]
    assert tenant.get(f"/webhooks/{webhook['id']}")["failing_since"] is None


def test_the_schedule() -> None:
    assert list(SCHEDULE_SECONDS) == [0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    for attempts in range(1, ATTEMPTS_MAX):
        planned = SCHEDULE_SECONDS[attempts]
        assert pause_seconds(attempts, None, 0.0) == planned
        assert planned < (pause_seconds(attempts, None, 1.0) or 0) <= planned * 1.2
    assert pause_seconds(ATTEMPTS_MAX, 10.0, 0.5) is None
    assert pause_seconds(1, 60.0, 0.5) == 60.0
    assert pause_seconds(1, 1e9, 0.5) == RETRY_AFTER_SECONDS_MAX
    assert pause_seconds(9, 1.0, 0.0) == SCHEDULE_SECONDS[9]


def test_after_the_last_attempt_it_has_failed_and_can_be_replayed(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(503))
    before = datetime.now(UTC) - timedelta(seconds=60)
    desk.append(tenant, 2)
    dispatcher = desk.dispatcher(failing_seconds_max=1e9)
    for _ in range(ATTEMPTS_MAX):
        desk.due_now(webhook["id"])
        desk.dispatch(dispatcher)
    failed = desk.deliveries(tenant, webhook)
    assert [(one["state"], one["attempts"]) for one in failed] == [("failed", ATTEMPTS_MAX)] * 2
    assert len(receiver.received) == 2 * ATTEMPTS_MAX
    receiver.will(answers(204))
    path = f"/webhooks/{webhook['id']}"
    again = tenant.make(f"{path}/deliveries/{failed[0]['number']}/replay")
    assert (again["state"], again["attempts"], again["event_id"]) == ("pending", 0, failed[0]["event_id"])
    desk.dispatch(dispatcher)
    assert [one["state"] for one in desk.deliveries(tenant, webhook)] == ["succeeded", "failed"]
    assert tenant.make(f"{path}/replay", {"since": "2999-01-01T00:00:00Z"})["replayed"] == 0
    answer = tenant.call("POST", f"{path}/replay", {"since": before.isoformat()}, key="replay-1")
    assert (answer.status_code, answer.json()) == (202, {"replayed": 1, "left": 0, "truncated": 0})
    desk.dispatch(dispatcher)
    assert [one["state"] for one in desk.deliveries(tenant, webhook)] == ["succeeded", "succeeded"]
    assert tenant.call("POST", f"{path}/replay", {"since": before.isoformat()}, key="replay-1").json()["replayed"] == 1
    assert tenant.make(f"{path}/replay", {"since": before.isoformat()})["replayed"] == 0
    bodies = {message.message_id: message.body for message in receiver.received}
    assert all(bodies[message.message_id] == message.body for message in receiver.received)


@pytest.mark.parametrize(
    ("status", "asked", "least", "most"),
    [
        (429, "7200", 7200, 7200), (503, "999999999", 86400, 86400), (502, "soon", 5, 6), (500, "7200", 5, 6), (504, "-1", 5, 6),
        (429, "Mon, 01 Jan 2024 00:00:00 +9999999999999", 5, 6),
    ],
    ids=range(6),
)  # fmt: skip
def test_an_endpoint_may_ask_for_patience(
    desk: Desk, receiver: Receiver, status: int, asked: str, least: float, most: float
) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(status, headers={"retry-after": asked}))
    desk.append(tenant)
    desk.dispatch()
    planned = desk.one(
        "select extract(epoch from next_attempt_at - attempted_at)::float8 from webhook_deliveries where webhook_id = %s",
        webhook["id"],
    )
    assert least <= planned < most + 5


def test_a_date_is_patience_too(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    moment = datetime.now(UTC) + timedelta(hours=3)
    receiver.will(answers(503, headers={"retry-after": moment.strftime("%a, %d %b %Y %H:%M:%S GMT")}))
    desk.append(tenant)
    desk.dispatch()
    planned = datetime.fromisoformat(desk.deliveries(tenant, webhook)[0]["next_attempt_at"])
    assert abs((planned - moment).total_seconds()) < 60


def test_gone_is_the_end(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(410))
    with receiving() as (watching,):
        desk.webhook(tenant, watching, types=["webhook.*"])
        desk.append(tenant)
        desk.dispatch()
        found = tenant.get(f"/webhooks/{webhook['id']}")
        assert (found["state"], found["disabled_reason"]) == ("disabled", "gone")
        desk.sequence()
        desk.dispatch()
        (told,) = [message.document for message in watching.received]
    assert (told["type"], told["data"]) == ("berth.webhook.disabled", {"webhook_id": webhook["id"], "reason": "gone"})
    assert [one["state"] for one in desk.deliveries(tenant, webhook)] == ["failed"]
    desk.append(tenant)
    desk.dispatch()
    assert len(receiver.received) == 1
    refused = tenant.call("POST", f"/webhooks/{webhook['id']}/deliveries/1/replay")
    assert problem(refused, 409, "invalid_state")["state"] == "disabled"
    answer = tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"})
    assert (answer.json()["state"], answer.json()["disabled_reason"]) == ("enabled", None)
    receiver.will(answers(200))
    desk.dispatch()
    assert len(receiver.received) == 1, "it begins with what comes next"
    desk.append(tenant)
    desk.dispatch()
    assert len(receiver.received) == 2


def test_who_fails_for_long_is_disabled(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500))
    desk.append(tenant, 3)
    desk.dispatch()
    assert tenant.get(f"/webhooks/{webhook['id']}")["state"] == "enabled"
    desk.database.execute(
        "update webhooks set failing_since = clock_timestamp() - interval '1001 s' where id = %s", (webhook["id"],)
    )
    desk.database.execute(
        "update webhook_deliveries set next_attempt_at = clock_timestamp() where webhook_id = %s and number = 1",
        (webhook["id"],),
    )
    desk.dispatch()
    found = tenant.get(f"/webhooks/{webhook['id']}")
    assert (found["state"], found["disabled_reason"]) == ("disabled", "failing")
    assert {one["state"] for one in desk.deliveries(tenant, webhook)} == {"failed"}
    kinds = desk.one("select array_agg(payload ->> 'reason') from outbox where event_type = 'webhook.disabled'")
    assert kinds == ["failing"]
    desk.sequence()


def test_rotation_signs_with_both_until_the_overlap_is_over(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    path = f"/webhooks/{webhook['id']}"
    rotated = tenant.call("POST", f"{path}/rotate", {"overlap_seconds": 3600}, key="rotate-1")
    assert rotated.json()["secret"] != webhook["secret"]
    repeated = tenant.call("POST", f"{path}/rotate", {"overlap_seconds": 3600}, key="rotate-1")
    assert repeated.json()["secret"] == rotated.json()["secret"]
    desk.append(tenant)
    desk.dispatch()
    (both,) = receiver.received
    assert len(both.headers["webhook-signature"].split(" ")) == 2
    for secret in (webhook["secret"], rotated.json()["secret"]):
        assert verified(secret, both)
    desk.database.execute(
        """update webhooks set keys = (select jsonb_agg(case when key ->> 'until' is null then key
           else key || jsonb_build_object('until', clock_timestamp()) end) from jsonb_array_elements(keys) key) where id = %s""",
        (webhook["id"],),
    )
    desk.append(tenant)
    desk.dispatch()
    assert verified(rotated.json()["secret"], receiver.received[1])
    with pytest.raises(WebhookVerificationError):
        verified(webhook["secret"], receiver.received[1])
    at_once = tenant.make(f"{path}/rotate", {"overlap_seconds": 0})
    desk.append(tenant)
    desk.dispatch()
    assert verified(at_once["secret"], receiver.received[2])
    with pytest.raises(WebhookVerificationError):
        verified(rotated.json()["secret"], receiver.received[2])
    for _ in range(4):
        tenant.make(f"{path}/rotate")
    problem(tenant.call("POST", f"{path}/rotate"), 409, "webhook_keys_full")


def test_ed25519(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"], signing="ed25519")
    assert "secret" not in webhook
    (public_key,) = webhook["public_keys"]
    desk.append(tenant)
    desk.dispatch()
    verify_ed25519(public_key, receiver.received[0])
    rotated = tenant.make(f"/webhooks/{webhook['id']}/rotate")
    assert len(rotated["public_keys"]) == 2
    assert rotated["public_keys"][1] == public_key
    desk.append(tenant)
    desk.dispatch()
    for key in rotated["public_keys"]:
        verify_ed25519(key, receiver.received[1])
    with pytest.raises(InvalidSignature):
        verify_ed25519(rotated["public_keys"][0], receiver.received[0])


def test_a_test_message_comes_at_once_and_once(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver)
    path = f"/webhooks/{webhook['id']}"
    assert tenant.call("PATCH", path, {"state": "disabled"}).json()["disabled_reason"] == "requested"
    added = tenant.make(f"{path}/test")
    assert (added["event_type"], added["version"], added["state"]) == ("webhook.test", None, "pending")
    desk.dispatch()
    (message,) = receiver.received
    assert verified(webhook["secret"], message)["type"] == "berth.webhook.test"
    assert message.message_id == added["event_id"]
    receiver.will(answers(500))
    number = tenant.make(f"{path}/test")["number"]
    desk.dispatch()
    told = tenant.get(f"{path}/deliveries/{number}")
    assert (told["state"], told["attempts"], told["response_status"]) == ("failed", 1, 500)
    assert tenant.get(path)["failing_since"] is None
    tenant.make(f"{path}/deliveries/{number}/replay")
    desk.dispatch()
    assert receiver.received[1].body == receiver.received[2].body


@pytest.mark.full
def test_a_full_backlog_waits_in_the_log(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500))
    desk.append(tenant, 60)
    dispatcher = desk.dispatcher(pending_max=50)
    desk.dispatch(dispatcher)
    desk.append(tenant, 5)
    desk.dispatch(dispatcher)
    pending = len(desk.deliveries(tenant, webhook))
    assert pending == 60, "a batch is written whole"
    receiver.will(answers(200))
    desk.due_now(webhook["id"])
    desk.dispatch(dispatcher)
    told = desk.deliveries(tenant, webhook)
    assert numbers(told) == list(range(1, 66))
    assert {one["state"] for one in told} == {"succeeded"}
    assert len({one["event_id"] for one in told}) == 65
