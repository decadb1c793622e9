"""The key that seals webhooks' secrets is rotated, with overlap, while deliveries go on."""

from __future__ import annotations

import base64
import itertools
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from berth.local.authority import ensure_authority
from orchestrator.webhooks.commands.resealing import FIRST, reseal_webhooks
from orchestrator.webhooks.keys import WebhookKeys, WebhookKeyUnreadable, load_webhook_keys
from tests.allocations.seeding import write_signing_key
from tests.api.calling import Caller
from tests.deploy import deployment
from tests.webhooks.receivers import Receiver
from tests.webhooks.stage import WebhookStage
from worker.webhooks.resealing import reseal_all

OLD, NEW = os.urandom(32), os.urandom(32)


def sealed_under(stage: WebhookStage, keys: WebhookKeys) -> int:
    """How many stored keys begin with the id of the first of `keys`."""
    query = "select count(*) from webhooks, jsonb_array_elements(keys) key where starts_with(key ->> 'sealed', %s)"
    return int(stage.one(query, keys.prefix))


def use(stage: WebhookStage, keys: WebhookKeys) -> None:
    """The API seals under these from now on, as after its restart."""
    object.__setattr__(stage.services, "webhook_keys", keys)


def deliver(stage: WebhookStage, tenant: Caller, receiver: Receiver, *senders: WebhookKeys) -> None:
    """Each sender delivers one more event to every webhook; none fails."""
    for keys in senders:
        before = len(receiver.received)
        stage.append(tenant)
        stage.dispatch(stage.dispatcher(keys=keys))
        webhooks = tenant.every("/webhooks", 50)
        assert len(receiver.received) == before + len(webhooks)
        errors = [one["error"] for webhook in webhooks for one in stage.deliveries(tenant, webhook)]
        assert set(errors) == {None}


@pytest.mark.full
def test_the_webhook_key_is_rotated_while_deliveries_go_on(stage: WebhookStage, receiver: Receiver) -> None:
    """At each step of the rotation some processes run with the keys of the step before, others with the new ones."""
    tenant = stage.tenant()
    steps = [WebhookKeys(keys) for keys in ([OLD], [OLD, NEW], [NEW, OLD], [NEW])]
    before = stage.services.webhook_keys
    assert before is not None
    try:
        for earlier, later in itertools.pairwise(steps):
            for api in (earlier, later):
                use(stage, api)
                webhook = stage.webhook(tenant, receiver, types=["node.online"])
                tenant.make(f"/webhooks/{webhook['id']}/rotate")
                deliver(stage, tenant, receiver, earlier, later)
            stage.run(partial(reseal_all, stage.sending, later))
            deliver(stage, tenant, receiver, later)
        assert sealed_under(stage, steps[-1]) == 12
        assert sealed_under(stage, steps[0]) == 0
    finally:
        use(stage, before)


def test_resealing_takes_batches_and_leaves_what_it_cannot_read(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    before = stage.services.webhook_keys
    assert before is not None
    try:
        use(stage, WebhookKeys([OLD]))
        made = [stage.webhook(tenant, receiver) for _ in range(3)]
        lost = tenant.make("/webhooks", {"url": receiver.url})
        raw = base64.b64encode(os.urandom(60)).decode()
        keys = f'[{{"sealed": "{raw}", "public_key": null, "until": null}}]'
        stage.database.execute("update webhooks set keys = %s::jsonb where id = %s", (keys, lost["id"]))
        newest = WebhookKeys([os.urandom(32), OLD])
        after, resealed, unreadable, rounds = FIRST, 0, 0, 0
        while True:
            step = stage.run(partial(reseal_webhooks, stage.sending, newest, after=after, limit=2))
            resealed, unreadable, rounds = resealed + step.resealed, unreadable + step.unreadable, rounds + 1
            if step.last is None:
                break
            after = step.last
        assert (sealed_under(stage, newest), rounds >= 2) == (3, True)
        assert resealed == len(made)
        assert unreadable >= 1
        stored = stage.one("select keys -> 0 ->> 'sealed' from webhooks where id = %s", lost["id"])
        assert stored == raw, "a key that cannot be read is kept: its sealing key may come back"
    finally:
        use(stage, before)


def test_what_earlier_versions_sealed_is_delivered_and_sealed_again(
    stage: WebhookStage, receiver: Receiver, tmp_path: Path
) -> None:
    """Earlier versions sealed under a key derived from the task signing key, and wrote no id of a key."""
    signing = write_signing_key(tmp_path / "task-signing.key")
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    opening = stage.services.webhook_keys
    assert opening is not None
    query = "select keys -> 0 ->> 'sealed' from webhooks where id = %s"
    stored = stage.one(query, webhook["id"])
    id_ = stage.one("select id from webhooks where id = %s", webhook["id"])
    secret = opening.open(id_, stored)
    nonce = os.urandom(12)
    cipher = AESGCM(derived(signing))
    legacy = base64.b64encode(nonce + cipher.encrypt(nonce, secret.encode(), id_.bytes)).decode()
    stage.database.execute(
        "update webhooks set keys = jsonb_set(keys, '{0,sealed}', to_jsonb(%s::text)) where id = %s", (legacy, id_)
    )
    upgraded = load_webhook_keys(ensure_authority(tmp_path, "berth.local").webhook_keys)
    deliver(stage, tenant, receiver, upgraded)
    assert stage.run(lambda: reseal_all(stage.sending, upgraded)) >= 1
    assert stage.one(query, webhook["id"]).startswith(upgraded.prefix)
    deliver(stage, tenant, receiver, upgraded)


def derived(signing_key: Path) -> bytes:
    """The sealing key of earlier versions."""
    key: Any = load_pem_private_key(signing_key.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return HKDF(SHA256(), 32, salt=None, info=b"berth: keys of webhooks").derive(key.private_bytes_raw())


def test_make_secrets_adds_the_derived_key_to_a_deployment_that_exists(tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    deployment.make_secrets(directory)
    assert len((directory / "webhook_keys").read_text().split()) == 1, "a new deployment has nothing to open"
    (directory / "webhook_keys").unlink()
    deployment.make_secrets(directory)
    first, second = (base64.b64decode(line) for line in (directory / "webhook_keys").read_text().split())
    assert second == derived(directory / "task_signing_key.pem")
    assert first != second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no webhook key"),
        ("\n \n", "holds no webhook key"),
        ("not base64!\n", "line 1 of webhook.keys is not base64"),
        (
            f"{base64.b64encode(bytes(32)).decode()}\n{base64.b64encode(bytes(16)).decode()}\n",
            "line 2 .* holds 16 bytes",
        ),
    ],
)
def test_a_file_of_webhook_keys_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "webhook.keys"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        load_webhook_keys(file)


def test_a_key_that_another_webhook_key_sealed_is_unreadable(stage: WebhookStage) -> None:
    id_ = stage.one("select uuidv7()")
    sealed = WebhookKeys([OLD]).seal(id_, "secret")
    assert WebhookKeys([NEW, OLD]).open(id_, sealed) == "secret"
    with pytest.raises(WebhookKeyUnreadable):
        WebhookKeys([NEW]).open(id_, sealed)
