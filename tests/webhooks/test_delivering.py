"""Events become messages: owner, types, signature, retries, and the delivery record."""

from __future__ import annotations

import base64
import socket
import time
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
from tests.webhooks.receivers import Received, Receiver, answers, receiving
from tests.webhooks.stage import WebhookStage, numbers


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


def test_a_tenant_gets_its_own_events_and_an_operator_all(stage: WebhookStage, receiver: Receiver) -> None:
    one, other = stage.tenant(), stage.tenant()
    stage.append(one)
    with receiving() as (of_operators,):
        mine = stage.webhook(one, receiver)
        theirs = stage.webhook(stage.admin, of_operators, types=["node.online"])
        stage.append(one, 2)
        stage.append(other)
        head = stage.append(None)
        stage.dispatch()
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


def test_a_message_is_dated_by_the_databases_clock(
    stage: WebhookStage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint refuses what is dated minutes away: a step of the sender's clock must change nothing."""
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.*"])
    stage.append(tenant)
    clock = time.time
    with monkeypatch.context() as stepped:
        stepped.setattr(time, "time", lambda: clock() + 3600)
        stage.dispatch()
    (message,) = receiver.received
    assert verified(webhook["secret"], message) == message.document


def test_the_body_is_the_document_that_the_relay_publishes(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    stage.webhook(tenant, receiver, types=["node.*"])
    version = stage.append(tenant)
    stage.dispatch()
    (message,) = receiver.received
    published = stage.database.execute(SELECT_EVENTS, {"after": version - 1, "limit": 1}).fetchone()
    assert published is not None
    expected, told = orjson.loads(published[5]), message.document
    assert datetime.fromisoformat(told.pop("time")) == datetime.fromisoformat(expected.pop("time"))
    assert told == expected


def test_types_choose(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    stage.webhook(tenant, receiver, types=["provisioning.releasing.*", "node.online"])
    for event_type in ("node.offline", "provisioning.active", "provisioning.releasing.requested", "node.online"):
        stage.append(tenant, event_type=event_type)
    stage.dispatch()
    told = {message.document["type"] for message in receiver.received}
    assert told == {"berth.provisioning.releasing.requested", "berth.node.online"}


def test_a_message_that_fails_comes_again_as_it_was_and_by_the_schedule(
    stage: WebhookStage, receiver: Receiver
) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500, body=b"out of \x00 order"), answers(200))
    stage.append(tenant)
    stage.dispatch()
    (failed,) = stage.deliveries(tenant, webhook)
    assert (failed["state"], failed["attempts"], failed["response_status"]) == ("pending", 1, 500)
    assert failed["response_excerpt"] == "out of \ufffd order"
    assert tenant.get(f"/webhooks/{webhook['id']}")["failing_since"] is not None
    pause = stage.one(
        "select extract(epoch from next_attempt_at - clock_timestamp())::float8 from webhook_deliveries where webhook_id = %s",
        webhook["id"],
    )
    assert 0 < pause < SCHEDULE_SECONDS[1] * 1.2
    stage.due_now(webhook["id"])
    stage.dispatch()
    first, second = receiver.received
    assert (first.body, first.message_id) == (second.body, second.message_id)
    assert verified(webhook["secret"], second)
    (done,) = stage.deliveries(tenant, webhook)
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


def test_after_the_last_attempt_it_has_failed_and_can_be_replayed(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(503))
    before = datetime.now(UTC) - timedelta(seconds=60)
    stage.append(tenant, 2)
    dispatcher = stage.dispatcher(failing_seconds_max=1e9)
    for _ in range(ATTEMPTS_MAX):
        stage.due_now(webhook["id"])
        stage.dispatch(dispatcher)
    failed = stage.deliveries(tenant, webhook)
    assert [(one["state"], one["attempts"]) for one in failed] == [("failed", ATTEMPTS_MAX)] * 2
    assert len(receiver.received) == 2 * ATTEMPTS_MAX
    receiver.will(answers(204))
    path = f"/webhooks/{webhook['id']}"
    again = tenant.make(f"{path}/deliveries/{failed[0]['number']}/replay")
    assert (again["state"], again["attempts"], again["event_id"]) == ("pending", 0, failed[0]["event_id"])
    stage.dispatch(dispatcher)
    assert [one["state"] for one in stage.deliveries(tenant, webhook)] == ["succeeded", "failed"]
    assert tenant.make(f"{path}/replay", {"since": "2999-01-01T00:00:00Z"})["replayed"] == 0
    answer = tenant.call("POST", f"{path}/replay", {"since": before.isoformat()}, key="replay-1")
    assert (answer.status_code, answer.json()) == (202, {"replayed": 1, "left": 0, "truncated": 0})
    stage.dispatch(dispatcher)
    assert [one["state"] for one in stage.deliveries(tenant, webhook)] == ["succeeded", "succeeded"]
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
    stage: WebhookStage, receiver: Receiver, status: int, asked: str, least: float, most: float
) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(status, headers={"retry-after": asked}))
    stage.append(tenant)
    stage.dispatch()
    planned = stage.one(
        "select extract(epoch from next_attempt_at - attempted_at)::float8 from webhook_deliveries where webhook_id = %s",
        webhook["id"],
    )
    assert least <= planned < most + 5


def test_a_date_is_patience_too(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    moment = datetime.now(UTC) + timedelta(hours=3)
    receiver.will(answers(503, headers={"retry-after": moment.strftime("%a, %d %b %Y %H:%M:%S GMT")}))
    stage.append(tenant)
    stage.dispatch()
    planned = datetime.fromisoformat(stage.deliveries(tenant, webhook)[0]["next_attempt_at"])
    assert abs((planned - moment).total_seconds()) < 60


def test_gone_is_the_end(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(410))
    with receiving() as (watching,):
        stage.webhook(tenant, watching, types=["webhook.*"])
        stage.append(tenant)
        stage.dispatch()
        found = tenant.get(f"/webhooks/{webhook['id']}")
        assert (found["state"], found["disabled_reason"]) == ("disabled", "gone")
        stage.sequence()
        stage.dispatch()
        (told,) = [message.document for message in watching.received]
    assert (told["type"], told["data"]) == ("berth.webhook.disabled", {"webhook_id": webhook["id"], "reason": "gone"})
    assert [one["state"] for one in stage.deliveries(tenant, webhook)] == ["failed"]
    stage.append(tenant)
    stage.dispatch()
    assert len(receiver.received) == 1
    refused = tenant.call("POST", f"/webhooks/{webhook['id']}/deliveries/1/replay")
    assert problem(refused, 409, "invalid_state")["state"] == "disabled"
    answer = tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"})
    assert (answer.json()["state"], answer.json()["disabled_reason"]) == ("enabled", None)
    receiver.will(answers(200))
    stage.dispatch()
    assert len(receiver.received) == 1, "it begins with what comes next"
    stage.append(tenant)
    stage.dispatch()
    assert len(receiver.received) == 2


def test_an_attempt_under_way_while_its_webhook_is_disabled_ends_as_disabled(
    stage: WebhookStage, receiver: Receiver
) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])

    def disables_and_fails(link: socket.socket) -> None:
        assert tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "disabled"}).status_code == 200
        answers(500)(link)

    receiver.will(disables_and_fails, answers(204))
    stage.append(tenant)
    stage.dispatch()
    (delivery,) = stage.deliveries(tenant, webhook)
    assert (delivery["state"], delivery["attempts"], delivery["error"]) == ("failed", 1, "webhook_disabled")
    assert delivery["response_status"] == 500
    tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"})
    tenant.make(f"/webhooks/{webhook['id']}/deliveries/1/replay")
    stage.dispatch()
    (delivery,) = stage.deliveries(tenant, webhook)
    assert (delivery["state"], delivery["error"]) == ("succeeded", None)


def test_an_endpoint_that_fails_for_long_is_disabled(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500))
    stage.append(tenant, 3)
    stage.dispatch()
    assert tenant.get(f"/webhooks/{webhook['id']}")["state"] == "enabled"
    stage.database.execute(
        "update webhooks set failing_since = clock_timestamp() - interval '1001 s' where id = %s", (webhook["id"],)
    )
    stage.database.execute(
        "update webhook_deliveries set next_attempt_at = clock_timestamp() where webhook_id = %s and number = 1",
        (webhook["id"],),
    )
    stage.dispatch()
    found = tenant.get(f"/webhooks/{webhook['id']}")
    assert (found["state"], found["disabled_reason"]) == ("disabled", "failing")
    assert {one["state"] for one in stage.deliveries(tenant, webhook)} == {"failed"}
    kinds = stage.one("select array_agg(payload ->> 'reason') from outbox where event_type = 'webhook.disabled'")
    assert kinds == ["failing"]
    stage.sequence()


def test_rotation_signs_with_both_until_the_overlap_is_over(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    path = f"/webhooks/{webhook['id']}"
    rotated = tenant.call("POST", f"{path}/rotate", {"overlap_seconds": 3600}, key="rotate-1")
    assert rotated.json()["secret"] != webhook["secret"]
    repeated = tenant.call("POST", f"{path}/rotate", {"overlap_seconds": 3600}, key="rotate-1")
    assert repeated.json()["secret"] == rotated.json()["secret"]
    stage.append(tenant)
    stage.dispatch()
    (both,) = receiver.received
    assert len(both.headers["webhook-signature"].split(" ")) == 2
    for secret in (webhook["secret"], rotated.json()["secret"]):
        assert verified(secret, both)
    stage.database.execute(
        """update webhooks set keys = (select jsonb_agg(case when key ->> 'until' is null then key
           else key || jsonb_build_object('until', clock_timestamp()) end) from jsonb_array_elements(keys) key) where id = %s""",
        (webhook["id"],),
    )
    stage.append(tenant)
    stage.dispatch()
    assert verified(rotated.json()["secret"], receiver.received[1])
    with pytest.raises(WebhookVerificationError):
        verified(webhook["secret"], receiver.received[1])
    at_once = tenant.make(f"{path}/rotate", {"overlap_seconds": 0})
    stage.append(tenant)
    stage.dispatch()
    assert verified(at_once["secret"], receiver.received[2])
    with pytest.raises(WebhookVerificationError):
        verified(rotated.json()["secret"], receiver.received[2])
    for _ in range(4):
        tenant.make(f"{path}/rotate")
    problem(tenant.call("POST", f"{path}/rotate"), 409, "webhook_keys_full")


def test_ed25519(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"], signing="ed25519")
    assert "secret" not in webhook
    (public_key,) = webhook["public_keys"]
    stage.append(tenant)
    stage.dispatch()
    verify_ed25519(public_key, receiver.received[0])
    rotated = tenant.make(f"/webhooks/{webhook['id']}/rotate")
    assert len(rotated["public_keys"]) == 2
    assert rotated["public_keys"][1] == public_key
    stage.append(tenant)
    stage.dispatch()
    for key in rotated["public_keys"]:
        verify_ed25519(key, receiver.received[1])
    with pytest.raises(InvalidSignature):
        verify_ed25519(rotated["public_keys"][0], receiver.received[0])


def test_a_test_message_comes_at_once_and_once(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver)
    path = f"/webhooks/{webhook['id']}"
    assert tenant.call("PATCH", path, {"state": "disabled"}).json()["disabled_reason"] == "requested"
    added = tenant.make(f"{path}/test")
    assert (added["event_type"], added["version"], added["state"]) == ("webhook.test", None, "pending")
    stage.dispatch()
    (message,) = receiver.received
    assert verified(webhook["secret"], message)["type"] == "berth.webhook.test"
    assert message.message_id == added["event_id"]
    receiver.will(answers(500))
    number = tenant.make(f"{path}/test")["number"]
    stage.dispatch()
    told = tenant.get(f"{path}/deliveries/{number}")
    assert (told["state"], told["attempts"], told["response_status"]) == ("failed", 1, 500)
    assert tenant.get(path)["failing_since"] is None
    tenant.make(f"{path}/deliveries/{number}/replay")
    stage.dispatch()
    assert receiver.received[1].body == receiver.received[2].body


@pytest.mark.full
def test_a_full_backlog_waits_in_the_log(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500))
    stage.append(tenant, 60)
    dispatcher = stage.dispatcher(pending_max=50)
    stage.dispatch(dispatcher)
    stage.append(tenant, 5)
    stage.dispatch(dispatcher)
    pending = len(stage.deliveries(tenant, webhook))
    assert pending == 60, "a batch is written whole"
    receiver.will(answers(200))
    stage.due_now(webhook["id"])
    stage.dispatch(dispatcher)
    told = stage.deliveries(tenant, webhook)
    assert numbers(told) == list(range(1, 66))
    assert {one["state"] for one in told} == {"succeeded"}
    assert len({one["event_id"] for one in told}) == 65
