"""Mutations of tenant filters, bounds, secrets, prices, fingerprints, `berth verify`."""

from __future__ import annotations

from tests.mutants.batch_bounds import BATCH_BOUNDS, TEMPORAL
from tests.mutants.mutant import Mutant
from tests.mutants.tenant_filters import TENANT_FILTERS

_SECRET_TESTS = "tests/api/test_secrets.py"
_SECRETS = [
    Mutant(
        "failed statements are logged with their parameters",
        "operations",
        "orchestrator/database/transactions.py",
        "            hide_parameters=True,",
        "            hide_parameters=False,",
        (_SECRET_TESTS,),
    ),
    Mutant(
        "all callers seal under one key",
        "tenants",
        "orchestrator/http/writes.py",
        "    return Sealer(bearer.strip())\n",
        '    return Sealer("berth")\n',
        (_SECRET_TESTS,),
    ),
    Mutant(
        "stored secrets are not sealed",
        "tenants",
        "orchestrator/operations/sealing.py",
        "        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, secret.encode(), None)).decode()\n",
        "        return secret\n",
        (_SECRET_TESTS,),
    ),
    Mutant(
        "every sealer has one key",
        "tenants",
        "orchestrator/operations/sealing.py",
        "derive(bearer.encode()))",
        'derive(b"berth"))',
        (_SECRET_TESTS,),
    ),
    Mutant(
        "keys of webhooks are sealed under a constant",
        "webhooks",
        "orchestrator/webhooks/keys.py",
        "AESGCM(signer.derive_key(_PURPOSE))",
        "AESGCM(bytes(32))",
        (_SECRET_TESTS,),
    ),
    Mutant(
        "an API key is written into the audit",
        "tenants",
        "orchestrator/tenants/commands/api_keys.py",
        '"tenant_id": tenant_id, "prefix": prefix}',
        '"tenant_id": tenant_id, "prefix": key}',
        (_SECRET_TESTS,),
    ),
    Mutant(
        "the log shows query parameters",
        "log",
        "orchestrator/edge/edge.py",
        'method=scope["method"], path=scope["path"], status=status,',
        'method=scope["method"], path=scope["path"], query=scope["query_string"].decode(), status=status,',
        (_SECRET_TESTS,),
    ),
]
_LIMITS = "tests/api/test_fingerprints_and_limits.py"
_REST = [
    Mutant(
        "query parameters are no part of a fingerprint",
        "operations",
        "orchestrator/http/operation_keys.py",
        'return {"body": document, "query": query} if query else document',
        "return document",
        (f"{_LIMITS}::test_the_query_is_part_of_a_writes_fingerprint",),
    ),
    Mutant(
        "a body of exactly the limit is refused by its length",
        "operations",
        "orchestrator/edge/edge.py",
        "int(length) > self._body_bytes_max",
        "int(length) >= self._body_bytes_max",
        (f"{_LIMITS}::test_a_body_may_have_exactly_the_limit_and_no_byte_more",),
    ),
    Mutant(
        "a body of exactly the limit is refused when it has arrived",
        "operations",
        "orchestrator/edge/edge.py",
        "if received > self._body_bytes_max:",
        "if received >= self._body_bytes_max:",
        (f"{_LIMITS}::test_a_body_may_have_exactly_the_limit_and_no_byte_more",),
    ),
    Mutant(
        "a body without a length has no limit",
        "operations",
        "orchestrator/edge/edge.py",
        "if received > self._body_bytes_max:",
        "if received > self._body_bytes_max + 1:",
        (f"{_LIMITS}::test_a_body_may_have_exactly_the_limit_and_no_byte_more",),
    ),
    Mutant(
        "every refusal is stored",
        "operations",
        "orchestrator/operations/execution.py",
        "    if not refusal.business:\n        raise refusal\n",
        "",
        (_LIMITS,),
    ),
    Mutant(
        "every refusal of a batch of creates is stored",
        "placement",
        "orchestrator/allocations/commands/create.py",
        "storable = [index for index, refusal in refusals.items() if refusal.business]",
        "storable = list(refusals)",
        (_LIMITS,),
    ),
    Mutant(
        "every refusal of a batch of holds is stored",
        "reservations",
        "orchestrator/reservations/commands/hold.py",
        "if isinstance(result, Problem) and result.business",
        "if isinstance(result, Problem)",
        (_LIMITS,),
    ),
    Mutant(
        "overload is an outcome of business",
        "operations",
        "orchestrator/problems.py",
        'status, code, title = 503, "overloaded", "Overloaded"',
        'status, code, title, business = 503, "overloaded", "Overloaded", True',
        (_LIMITS,),
    ),
    Mutant(
        "usage charges the newest price",
        "billing",
        "orchestrator/billing/store/usage.py",
        "p.sku = a.sku and p.price_version = a.price_version",
        "p.sku = a.sku and p.price_version = (select max(v.price_version) from sku_prices v where v.sku = a.sku)",
        (f"{_LIMITS}::test_usage_after_a_price_change_charges_each_allocation_its_own_price",),
    ),
]


def _branch(violation: str) -> tuple[str, ...]:
    """The test of a violation that one operand finds."""
    return (f"tests/berth/test_every_branch.py::test_a_violation_that_one_operand_finds_is_found[{violation}]",)


_VERIFICATION = [
    Mutant(
        "verify takes a claim on a missing node",
        "verification",
        "orchestrator/verification/p1_one_holder.py",
        "(n.id is null or not int8multirange",
        "(not int8multirange",
        _branch("a_node_that_is_not_there"),
    ),
    Mutant(
        "verify takes a reservation without a key",
        "verification",
        "orchestrator/verification/p2_reservations.py",
        "or r.operation_key = '' or octet_length",
        "or octet_length",
        _branch("an_old_reservation_without_a_key"),
    ),
    Mutant(
        "verify takes a hold with occupied units",
        "verification",
        "orchestrator/verification/p2_reservations.py",
        " or c.occupied or c.occupied_from is not null)",
        " or c.occupied_from is not null)",
        _branch("a_hold_whose_units_are_occupied"),
    ),
    Mutant(
        "verify takes a chain that begins before the log",
        "verification",
        "orchestrator/verification/p3_one_order.py",
        "(prev_version >= oldest or oldest = 1)",
        "(prev_version >= oldest)",
        _branch("a_chain_that_begins_before_a_whole_log"),
    ),
    Mutant(
        "verify takes an active allocation that occupies nothing",
        "verification",
        "orchestrator/verification/p6_proven_cleanup.py",
        "(c.closed_at is not null or not c.occupied)",
        "(c.closed_at is not null)",
        _branch("an_active_allocation_that_occupies_nothing"),
    ),
    Mutant(
        "verify takes a ledger without a balance",
        "verification",
        "orchestrator/verification/billing.py",
        "where b.tenant_id is null or b.settled_micro_units <>",
        "where b.settled_micro_units <>",
        _branch("a_ledger_without_a_balance"),
    ),
    Mutant(
        "verify takes a window that waits for ever",
        "verification",
        "orchestrator/verification/p9_complete_waits.py",
        "                or (state = 'confirmed' and waits_until is null and ends_at is not null)\n",
        "",
        _branch("a_window_that_waits_for_ever"),
    ),
]

MUTANTS: list[Mutant] = [*TENANT_FILTERS, *BATCH_BOUNDS, *TEMPORAL, *_SECRETS, *_REST, *_VERIFICATION]
