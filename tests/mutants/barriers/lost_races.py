"""Mutants of what is read before a lock or without one, while a rival changes it: nodes, SSH keys, holds and memberships."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ENDS = "tests/api/tenants/test_ended_members.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a refused create corrects the fit of a node that it has not locked",
        "placement",
        "migrations/functions/placement/place_allocations.sql",
        "where d.id = taken::uuid for no key update skip locked;",
        "where d.id = taken::uuid;",
        ("tests/placement/test_fits.py",),
    ),
    Mutant(
        "a create is refused because its node left service after the search",
        "placement",
        "orchestrator/placement/window_placing.py",
        "        return LostRace() if isinstance(outcome, NoRoom) else outcome\n",
        "        return outcome\n",
        (
            (
                "tests/placement/windows/test_held_windows.py::"
                "test_a_create_whose_node_leaves_service_while_it_waits_for_its_lock_goes_to_another"
            ),
        ),
    ),
    Mutant(
        "bare metal waits for a part of a larger node",
        "placement",
        "orchestrator/placement/store/placing.py",
        "        and (cast(:whole as integer) is null or n.slot_count = :whole) limit :gpus\n",
        "        and cast(:whole as integer) is distinct from 0 limit :gpus\n",
        (
            (
                "tests/placement/test_creating.py::"
                "test_bare_metal_is_refused_while_only_a_part_of_a_larger_node_has_as_many_gpus_free"
            ),
        ),
    ),
    Mutant(
        "the claims of a hold that did not expire are closed",
        "reservations",
        "migrations/functions/holds/expire_holds.sql",
        "p_retention_seconds, null, null) is null;",
        "p_retention_seconds, null, null) < 0;",
        (
            (
                "tests/reservations/test_races.py::"
                "test_a_hold_that_is_confirmed_before_its_expiry_has_its_lock_keeps_its_claims"
            ),
        ),
    ),
    Mutant(
        "a claim is turned over with the SSH keys that are left",
        "reservations",
        "migrations/functions/allocations/turn_over_claim.sql",
        "item.user_data, keys, claim.node_id,",
        (
            "item.user_data,\n        (select array_agg(k.public_key) from ssh_keys k where k.id = any (item.ssh_key_ids)),"
            " claim.node_id,"
        ),
        (
            (
                "tests/reservations/turning_over/test_consuming.py::"
                "test_an_ssh_key_that_is_deleted_while_its_claim_is_turned_over_is_still_the_allocations"
            ),
        ),
    ),
    Mutant(
        "an admin acts on after its role has ended",
        "tenants",
        "orchestrator/tenants/store/members.py",
        "    if not caller.is_member:\n",
        "    if caller.is_member:\n",
        (f"{ENDS}::test_an_admin_whose_role_ends_before_its_act_commits_is_refused",),
    ),
    Mutant(
        "an invitation does not wait for the end of its maker's role",
        "tenants",
        "orchestrator/tenants/store/members.py",
        'where id = :id and tenant_id = :tenant_id for share"',
        'where id = :id and tenant_id = :tenant_id for key share"',
        (f"{ENDS}::test_an_admin_whose_role_ends_before_its_act_commits_is_refused",),
    ),
]
