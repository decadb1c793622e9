"""Mutants that remove the tenant's filter of one statement or condition: ids of another tenant must not be answered.

More of them are beside their nouns.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import foreign

_ALLOCATION = "/api/v1/allocations/{allocation_id}"
_LOCK = "subject = await lock_allocation(tx, allocation_id, tenant_id)"
_LOCK_ANY = "subject = await lock_allocation(tx, allocation_id, None)"

MUTANTS: list[Mutant] = [
    Mutant(
        "an allocation is changed whatever its tenant",
        "allocations",
        "orchestrator/allocations/commands/update.py",
        _LOCK,
        _LOCK_ANY,
        (foreign(f"PATCH {_ALLOCATION}"),),
    ),
    *(
        Mutant(
            f"a tenant's {verb} reaches an allocation whatever its tenant",
            "allocations",
            "orchestrator/allocations/commands/verbs.py",
            _LOCK,
            _LOCK_ANY,
            (foreign(f"POST {_ALLOCATION}/{verb}"),),
        )
        for verb in ("reboot", "stop", "start", "rebuild")
    ),
    Mutant(
        "a fault is reported of an allocation whatever its tenant",
        "allocations",
        "orchestrator/allocations/commands/faults.py",
        _LOCK,
        _LOCK_ANY,
        (foreign(f"POST {_ALLOCATION}/report-fault"),),
    ),
    Mutant(
        "a fault report is read whatever its tenant",
        "allocations",
        "orchestrator/allocations/fault_queries.py",
        "tenant_id not in (None, found.tenant_id)",
        "False",
        (foreign("GET /api/v1/fault-reports/{report_id}"),),
    ),
    Mutant(
        "another tenant's fault reports are listed",
        "allocations",
        "orchestrator/allocations/store/faults.py",
        "page = page.where(fault_reports.c.tenant_id == tenant_id)",
        "pass",
        (foreign("GET /api/v1/fault-reports"),),
    ),
    Mutant(
        "a timeline is listed whatever its allocation's tenant",
        "allocations",
        "orchestrator/allocations/queries.py",
        "        if await allocation_rows.read_allocation(reading, allocation_id, tenant_id) is None:\n",
        "        if await allocation_rows.read_allocation(reading, allocation_id, None) is None:\n",
        (foreign(f"GET {_ALLOCATION}/timeline"),),
    ),
    Mutant(
        "a wipe certificate is read whatever its allocation's tenant",
        "wipes",
        "orchestrator/allocations/queries.py",
        (
            "        row = await allocation_rows.read_allocation(reading, allocation_id, tenant_id)\n"
            "        if row is None:\n"
            "            raise await missing_allocation(reading, allocation_id, tenant_id, for_operator=for_operator)\n"
            "        found = await read_certificate_document"
        ),
        (
            "        row = await allocation_rows.read_allocation(reading, allocation_id, None)\n"
            "        if row is None:\n"
            "            raise await missing_allocation(reading, allocation_id, tenant_id, for_operator=for_operator)\n"
            "        found = await read_certificate_document"
        ),
        (foreign(f"GET {_ALLOCATION}/wipe-certificate"),),
    ),
    Mutant(
        "a console is read whatever its allocation's tenant",
        "consoles",
        "orchestrator/consoles/rules.py",
        "target is None or target.tenant_id != tenant_id",
        "target is None",
        (foreign(f"GET {_ALLOCATION}/console"),),
    ),
    Mutant(
        "another tenant's API keys are listed",
        "tenants",
        "orchestrator/tenants/store/api_keys.py",
        "page = page.where(api_keys.c.tenant_id == tenant_id)",
        "pass",
        (foreign("GET /api/v1/api-keys"),),
    ),
    Mutant(
        "an API key is revoked whatever its tenant",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        "await key_changes.revoke_own_key(tx, caller.tenant_id, key_id)",
        "await api_keys.revoke_api_key(tx, key_id)",
        (foreign("DELETE /api/v1/api-keys/{key_id}"),),
    ),
    Mutant(
        "an API key is rotated with every tenant in scope",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        "made, replaced = await rotate_key(tx, scope, key_id, wanted, bounds, caller.scopes)",
        "made, replaced = await rotate_key(tx, None, key_id, wanted, bounds, caller.scopes)",
        (foreign("POST /api/v1/api-keys/{key_id}/rotate"),),
    ),
    Mutant(
        "a webhook is deleted without its tenant",
        "webhooks",
        "orchestrator/webhooks/commands/webhooks.py",
        (
            "        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n"
            "        await webhooks.delete_webhook(tx, webhook_id)"
        ),
        "        await webhooks.delete_webhook(tx, webhook_id)",
        (foreign("DELETE /api/v1/webhooks/{webhook_id}"),),
    ),
    Mutant(
        "a webhook's keys are rotated without its tenant",
        "webhooks",
        "orchestrator/webhooks/commands/webhooks.py",
        (
            "        await webhooks.lock_webhook(tx, caller.tenant_id, webhook_id)\n"
            "        signing = Signing((await webhooks.read_webhook(tx, caller.tenant_id, webhook_id)).signing)"
        ),
        "        signing = Signing.HMAC",
        (foreign("POST /api/v1/webhooks/{webhook_id}/rotate"),),
    ),
    Mutant(
        "the audit of another tenant is listed",
        "audit",
        "orchestrator/audit/endpoints.py",
        "query.filter(caller.tenant_id)",
        "query.filter(None)",
        (foreign("GET /api/v1/audit"),),
    ),
    Mutant(
        "the reservation of another tenant's slot is shown",
        "reservations",
        "orchestrator/reservations/store/resources.py",
        "(cast(:tenant_id as uuid) is null or c.tenant_id = :tenant_id) and r.id is not null",
        "(cast(:tenant_id as uuid) is null or true) and r.id is not null",
        (foreign("GET /api/v1/resources"),),
    ),
]
