"""The webhook sender is a process: it needs the database and the webhook keys, dies with its attempts, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from berth.local.authority import Authority, ensure_authority
from berth.local.servers import LocalPostgres, free_port
from migrations.roles import Role
from tests.api.calling import Caller
from tests.databases import as_role
from tests.forked.starting import CommandLine
from tests.metrics_ports import NO_ANSWER, get
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for
from tests.webhooks.receivers import Receiver
from tests.webhooks.stage import WebhookStage, open_stage

ANYWHERE = {
    "BERTH_WEBHOOK_HTTP_ALLOWED": "true", "BERTH_WEBHOOK_PRIVATE_ADDRESSES_ALLOWED": "true", "BERTH_WEBHOOK_PORTS": "[]",
    "BERTH_WEBHOOK_TICK_SECONDS": "0.05",
}  # fmt: skip
TYPES = ["node.online"]


class Senders:
    """Starts senders over the database of a stage, with its webhook keys and nothing else."""

    def __init__(self, stage: WebhookStage, authority: Authority) -> None:
        self.stage = stage
        self.port = free_port()
        self.environment = {
            "PATH": os.environ["PATH"],
            "BERTH_DATABASE_URL": as_role(stage.url, Role.WEBHOOKS),
            "BERTH_WEBHOOK_KEY_FILE": str(authority.webhook_keys),
            "BERTH_METRICS_PORT": str(self.port),
            **ANYWHERE,
        }

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """A sender that is ready; killed at the end."""
        # Not forked: a forked process has imported what a worker needs.
        with CommandLine([sys.executable, "-m", "worker", "--webhooks"], env=self.environment) as process:
            try:
                wait_for(self._ready, "the sender to be ready")
                yield process
            finally:
                process.kill()

    def _ready(self) -> bool:
        try:
            return get(self.port, "/ok")[0] == 200
        except NO_ANSWER:
            return False


@pytest.fixture
def senders(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[Senders]:
    with open_stage(postgres_server, migrated_template, tmp_path) as stage:
        yield Senders(stage, ensure_authority(tmp_path, "berth.local"))


def test_a_sender_that_is_killed_in_an_attempt_is_replaced_and_nothing_is_lost(
    senders: Senders, receiver: Receiver
) -> None:
    stage = senders.stage
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=TYPES)
    receiver.will(receiver.hangs)
    stage.append(tenant)
    with senders.running() as sender:
        wait_for(lambda: receiver.received, "an attempt")
        sender.kill()
        assert sender.wait(WAIT_SECONDS_MAX) < 0
    (cut_off,) = stage.deliveries(tenant, webhook)
    assert (cut_off["state"], cut_off["attempts"]) == ("pending", 1), "the lease of the dead sender"
    receiver.will(lambda link: link.sendall(b"HTTP/1.1 204 No\r\ncontent-length: 0\r\n\r\n"))
    stage.due_now(webhook["id"])
    stage.append(tenant)
    with senders.running() as sender:
        wait_for(lambda: {one["state"] for one in stage.deliveries(tenant, webhook)} == {"succeeded"}, "the deliveries")
        sender.terminate()
        assert sender.wait(WAIT_SECONDS_MAX) == 0
    again = [one.message_id for one in receiver.received].count(cut_off["event_id"])
    assert (again, len(receiver.received)) == (2, 3), "under the same id"


def key_that_expires(stage: WebhookStage) -> tuple[str, Caller]:
    """Id and holder of an operator's key with an expiry."""
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    made = stage.admin.make("/admin/api-keys", {"name": "for an hour", "role": "admin", "expires_at": at})
    return str(made["id"]), Caller(stage.http, made["key"])


def expire(stage: WebhookStage, key_id: str) -> None:
    """As if the hour were over."""
    stage.database.execute("update api_keys set expires_at = clock_timestamp() where id = %s", (key_id,))
    stage.database.execute("update webhooks set key_expires_at = clock_timestamp() where created_by = %s", (key_id,))


@pytest.mark.full
def test_an_operators_webhook_ends_with_the_expiry_of_its_key(senders: Senders, receiver: Receiver) -> None:
    stage = senders.stage
    key_id, leaver = key_that_expires(stage)
    tenant = stage.tenant()
    ends, stays = stage.webhook(leaver, receiver, types=TYPES), stage.webhook(stage.admin, receiver, types=TYPES)
    own = stage.webhook(tenant, receiver, types=TYPES)
    expiry = stage.database.execute(
        "select key_expires_at = (select expires_at from api_keys where id = %s) from webhooks where id = %s",
        (key_id, ends["id"]),
    ).fetchone()
    assert expiry == (True,)
    with senders.running():
        stage.append(tenant)
        wait_for(lambda: len(receiver.received) == 3, "all three")
        stage.append(tenant)
        wait_for(lambda: len(receiver.received) == 6, "all three again")
    expire(stage, key_id)
    # A delivery that waited when the key expired is not sent either.
    stage.database.execute(
        "insert into webhook_deliveries (webhook_id, number, version, event_id, event_type)"
        " select id, numbered + 100, 1, uuidv7(), 'node.online' from webhooks where id = %s",
        (ends["id"],),
    )
    stage.append(tenant)
    with senders.running():
        wait_for(lambda: len(receiver.received) == 8, "the other two")
        wait_for(lambda: stage.admin.get(f"/webhooks/{ends['id']}")["state"] == "disabled", "it is disabled")
    stopped = stage.admin.get(f"/webhooks/{ends['id']}")
    assert (stopped["disabled_reason"], len(receiver.received)) == ("key_expired", 8)
    waited = "select state from webhook_deliveries where webhook_id = %s and number > 100"
    assert stage.one(waited, ends["id"]) == "failed"
    enqueued = "select count(*) from webhook_deliveries where webhook_id = %s and number <= 100"
    assert stage.one(enqueued, ends["id"]) == 2, "the event after the expiry is no delivery of this webhook"
    assert [stage.admin.get(f"/webhooks/{stays['id']}")["state"], tenant.get(f"/webhooks/{own['id']}")["state"]] == [
        "enabled", "enabled",
    ]  # fmt: skip
    told = stage.database.execute(
        "select payload from outbox where event_type = 'webhook.disabled' union all"
        " select payload from log where event_type = 'webhook.disabled'"
    ).fetchall()
    assert told == [({"webhook_id": ends["id"], "reason": "key_expired"},)]


@pytest.mark.quick("rotated")
@pytest.mark.parametrize("change", ["rotated", "enabled"])
def test_a_webhook_belongs_to_the_key_that_a_rotation_or_an_operator_gives_it(
    senders: Senders, receiver: Receiver, change: str
) -> None:
    stage = senders.stage
    key_id, leaver = key_that_expires(stage)
    webhook = stage.webhook(leaver, receiver, types=TYPES)
    if change == "rotated":
        rotated = stage.admin.call("POST", f"/admin/api-keys/{key_id}/rotate", {"overlap_seconds": 3600})
        assert rotated.status_code == 201, rotated.text
        owner = rotated.json()["id"]
    else:
        for state in ("disabled", "enabled"):
            assert stage.admin.call("PATCH", f"/webhooks/{webhook['id']}", {"state": state}).status_code == 200
        owner = str(stage.one("select id from api_keys where name = 'first'"))
    expire(stage, key_id)
    with senders.running():
        stage.append(stage.tenant())
        wait_for(lambda: len(receiver.received) == 1, "it is sent")
    assert str(stage.one("select created_by from webhooks where id = %s", webhook["id"])) == owner
    assert stage.admin.call("DELETE", f"/admin/api-keys/{owner}").status_code in (204, 409)
    if change == "rotated":
        assert stage.admin.get(f"/webhooks/{webhook['id']}")["disabled_reason"] == "key_revoked"


def test_its_metrics_are_those_of_webhooks(senders: Senders) -> None:
    with senders.running():
        status, text = get(senders.port, "/metrics")
    names = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE berth_")}
    assert status == 200
    assert {name for name in names if not name.startswith("berth_webhook")} == {
        "berth_worker_swept_total", "berth_worker_sweep_failures_total", "berth_worker_sweep_seconds",
    }  # fmt: skip
    assert {"berth_webhooks", "berth_webhook_oldest_due_seconds", "berth_webhook_attempts_total"} <= names


@pytest.mark.full
@pytest.mark.parametrize("module", ["worker.webhooks.app", "worker.webhooks.settings", "worker.__main__"])
def test_its_code_loads_neither_other_servers_libraries_nor_the_workers_settings(module: str) -> None:
    loaded = subprocess.check_output([sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], text=True)
    assert module in loaded.split()
    assert not {"temporalio", "nats", "worker.app", "worker.settings", "worker.metrics"} & set(loaded.split())


@pytest.mark.full
@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("BERTH_TASK_SIGNING_KEY_FILE", "is set; only the worker may have the key that signs tasks"),
        ("BERTH_NODE_CA_KEY_FILE", "is set; only the issuer may have the key of the node CA"),
        ("BERTH_WEBHOOK_KEY_FILE", "the webhook keys cannot be used"),
        ("BERTH_DATABASE_URL", "must"),
    ],
)
def test_it_does_not_start_with_a_key_of_another_process_or_without_what_it_needs(
    tmp_path: Path, variable: str, said: str
) -> None:
    files = ensure_authority(tmp_path, "berth.local")
    given = {"BERTH_DATABASE_URL": "postgresql://x@127.0.0.1:1/x", "BERTH_WEBHOOK_KEY_FILE": str(files.webhook_keys)}
    ended = subprocess.run(
        [sys.executable, "-m", "worker", "--webhooks"],
        env={"PATH": os.environ["PATH"], **given, variable: str(tmp_path / "nothing")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1
    assert said in ended.stderr
