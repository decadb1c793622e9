"""Mutants of the noun webhooks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import foreign, pages

_ROTATION = "tests/webhooks/test_key_rotation.py"
_ROTATION_OF_PROCESSES = "tests/rotation/test_webhook_key.py::test_the_webhook_key_is_replaced_while_deliveries_go_on"

MUTANTS: list[Mutant] = [
    Mutant(
        "a delivery that was left leased waits for its expired key",
        "webhooks",
        "orchestrator/webhooks/store/deliveries.py",
        "      and (w.state = 'deleted' or w.state = 'disabled' and w.key_expires_at <= clock_timestamp())\n",
        "      and w.state = 'deleted'\n",
        ("tests/webhooks/test_keeping.py",),
    ),
    Mutant(
        "a delivery is given up while its dispatcher may be sending it",
        "webhooks",
        "orchestrator/webhooks/store/deliveries.py",
        "where d.state = 'pending' and d.next_attempt_at <= clock_timestamp()\n      and (w.state",
        "where d.state = 'pending'\n      and (w.state",
        ("tests/webhooks/test_keeping.py",),
    ),
    Mutant(
        "a delivery of a deleted webhook that was left leased waits for ever",
        "webhooks",
        "orchestrator/webhooks/store/deliveries.py",
        "(w.state = 'deleted' or w.state = 'disabled' and",
        "(w.state = 'disabled' and",
        ("tests/webhooks/test_keeping.py",),
    ),
    Mutant(
        "a webhook is read whatever its tenant",
        "webhooks",
        "orchestrator/webhooks/store/webhooks.py",
        (
            "where w.id = :id and w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid)\n"
            '"""\n'
            "_LIST"
        ),
        ('where w.id = :id and w.state <> \'deleted\' and true\n"""\n_LIST'),
        (foreign("GET /api/v1/webhooks/{webhook_id}"),),
    ),
    Mutant(
        "a webhook is changed whatever its tenant",
        "webhooks",
        "orchestrator/webhooks/store/webhooks.py",
        (
            "where w.id = :id and w.state <> 'deleted' and w.tenant_id is not distinct from cast(:tenant_id as uuid)\n"
            "for no key"
        ),
        ("where w.id = :id and w.state <> 'deleted' and true\nfor no key"),
        (foreign("PATCH /api/v1/webhooks/{webhook_id}"),),
    ),
    Mutant(
        "another tenant's webhooks are listed",
        "webhooks",
        "orchestrator/webhooks/store/webhooks.py",
        ("w.tenant_id is not distinct from cast(:tenant_id as uuid) and w.id > :after"),
        ("w.id > :after"),
        (foreign("GET /api/v1/webhooks"),),
    ),
    Mutant(
        "an existing delivery is read without its webhook's tenant",
        "webhooks",
        "orchestrator/webhooks/queries.py",
        (
            "        await webhooks.read_webhook(reading, tenant_id, webhook_id)\n"
            "        return await webhook_deliveries.read_delivery("
        ),
        "        return await webhook_deliveries.read_delivery(",
        (foreign("GET /api/v1/webhooks/{webhook_id}/deliveries/{number}"),),
    ),
    Mutant(
        "existing deliveries are listed without their webhook's tenant",
        "webhooks",
        "orchestrator/webhooks/queries.py",
        (
            "        await webhooks.read_webhook(reading, tenant_id, webhook_id)\n"
            "        return await webhook_deliveries.list_deliveries("
        ),
        "        return await webhook_deliveries.list_deliveries(",
        (foreign("GET /api/v1/webhooks/{webhook_id}/deliveries"),),
    ),
    Mutant(
        "a delivery is replayed whatever its webhook's tenant",
        "webhooks",
        "orchestrator/webhooks/commands/replay.py",
        ("        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n        again ="),
        "        again =",
        (foreign("POST /api/v1/webhooks/{webhook_id}/deliveries/{number}/replay"),),
    ),
    Mutant(
        "failed deliveries are replayed whatever their webhook's tenant",
        "webhooks",
        "orchestrator/webhooks/commands/replay.py",
        ("        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n        replayed ="),
        "        replayed =",
        (foreign("POST /api/v1/webhooks/{webhook_id}/replay"),),
    ),
    Mutant(
        "a test message is sent whatever the webhook's tenant",
        "webhooks",
        "orchestrator/webhooks/commands/replay.py",
        ("        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n        added ="),
        "        added =",
        (foreign("POST /api/v1/webhooks/{webhook_id}/test"),),
    ),
    Mutant(
        "a webhook's position moves to the head after a full scan",
        "webhooks",
        "orchestrator/webhooks/store/dispatch.py",
        "case when r.events < :batch then r.head else r.last end",
        "r.head",
        ("tests/webhooks/test_far_behind.py",),
    ),
    Mutant(
        "a dispatcher's round never has more to write down",
        "webhooks",
        "worker/webhooks/dispatching.py",
        "return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX",
        "return False",
        ("tests/webhooks/test_far_behind.py",),
    ),
    Mutant(
        "a dispatcher's round forgets webhooks that it did not reach",
        "webhooks",
        "worker/webhooks/dispatching.py",
        "return advanced.unfinished > 0 or advanced.moved == WEBHOOKS_MAX",
        "return advanced.unfinished > 0",
        ("tests/webhooks/test_far_behind.py",),
    ),
    Mutant(
        "deliveries repeat a number",
        "webhooks",
        "orchestrator/webhooks/store/deliveries.py",
        "d.number < :before and",
        "d.number <= :before and",
        (pages("/api/v1/webhooks/{webhook_id}/deliveries "),),
    ),
    Mutant(
        "one sweep deletes one batch of deliveries",
        "webhooks",
        "worker/webhooks/deliveries.py",
        "if deleted < BATCH_MAX:",
        "if deleted <= BATCH_MAX:",
        ("tests/worker/test_sweeps_of_many.py::test_one_sweep_forgets_several_batches_of_deliveries",),
    ),
    Mutant(
        "keys of webhooks are sealed under a constant",
        "webhooks",
        "orchestrator/webhooks/keys.py",
        "AESGCM(key) for key",
        "AESGCM(bytes(32)) for key",
        ("tests/api/tenants/test_secrets.py",),
    ),
    Mutant(
        "only the first webhook key opens",
        "webhooks",
        "orchestrator/webhooks/keys.py",
        "for key in sealing_keys}",
        "for key in sealing_keys[:1]}",
        (f"{_ROTATION}::test_the_webhook_key_is_rotated_while_deliveries_go_on",),
    ),
    Mutant(
        "keys of webhooks stay sealed under the old webhook key",
        "webhooks",
        "orchestrator/webhooks/commands/resealing.py",
        'keys.seal(webhook_id, keys.open(webhook_id, key["sealed"]))',
        'key["sealed"]',
        (f"{_ROTATION}::test_the_webhook_key_is_rotated_while_deliveries_go_on", _ROTATION_OF_PROCESSES),
    ),
    Mutant(
        "the local stack drops what earlier versions sealed",
        "webhooks",
        "berth/local/authority.py",
        'info=b"berth: keys of webhooks"',
        'info=b"berth: keys"',
        (f"{_ROTATION}::test_what_earlier_versions_sealed_is_delivered_and_sealed_again",),
    ),
    Mutant(
        "a token makes a webhook of the operators",
        "webhooks",
        "orchestrator/webhooks/commands/webhooks.py",
        "if caller.tenant_id is None and caller.subject is not None:",
        "if False:",
        ("tests/api/tenants/test_token_roles.py::test_a_token_makes_and_enables_no_webhook_of_the_operators",),
    ),
]
