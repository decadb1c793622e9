"""Mutants of these nouns: allocations and placement."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import check, foreign, pages

MUTANTS: list[Mutant] = [
    Mutant(
        "an allocation is read whatever its tenant",
        "allocations",
        "orchestrator/allocations/store/rows.py",
        '_READ_OF_TENANT = _READ.where(_a.c.tenant_id == bindparam("tenant_id"))',
        "_READ_OF_TENANT = _READ",
        (foreign("GET /api/v1/allocations/{allocation_id}"),),
    ),
    Mutant(
        "an allocation is released whatever its tenant",
        "allocations",
        "orchestrator/allocations/store/advance.py",
        "where id = :allocation_id and (cast(:tenant_id as uuid) is null or tenant_id = :tenant_id))",
        "where id = :allocation_id and (cast(:tenant_id as uuid) is null or true))",
        (foreign("POST /api/v1/allocations/{allocation_id}/release"),),
    ),
    Mutant(
        "the list of allocations begins with lower tenants",
        "allocations",
        "orchestrator/allocations/store/rows.py",
        'tuple_(_a.c.tenant_id, _a.c.id) > tuple_(bindparam("tenant_id"), bindparam("after")),',
        '_a.c.id > bindparam("after"),',
        (foreign("GET /api/v1/allocations"),),
    ),
    Mutant(
        "an SSH key is read whatever its tenant",
        "allocations",
        "orchestrator/tenants/store/ssh_keys.py",
        "_OWN.where(ssh_keys.c.id == key_id, ssh_keys.c.tenant_id == tenant_id)",
        "_OWN.where(ssh_keys.c.id == key_id)",
        (foreign("GET /api/v1/ssh-keys/{key_id}"),),
    ),
    Mutant(
        "an SSH key is deleted whatever its tenant",
        "allocations",
        "orchestrator/tenants/store/ssh_keys.py",
        '"delete from ssh_keys where id = :id and tenant_id = :tenant_id"',
        '"delete from ssh_keys where id = :id and cast(:tenant_id as uuid) is not null"',
        (foreign("DELETE /api/v1/ssh-keys/{key_id}"),),
    ),
    Mutant(
        "another tenant's SSH keys are listed",
        "allocations",
        "orchestrator/tenants/store/ssh_keys.py",
        "_OWN.where(ssh_keys.c.tenant_id == tenant_id, ssh_keys.c.id > after)",
        "_OWN.where(ssh_keys.c.id > after)",
        (foreign("GET /api/v1/ssh-keys"),),
    ),
    Mutant(
        "a turn-over takes another tenant's SSH key",
        "allocations",
        "migrations/functions/allocations/turn_over_claim.sql",
        "k.id = any (item.ssh_key_ids) and k.tenant_id = claim.tenant_id)",
        "k.id = any (item.ssh_key_ids))",
        (foreign("POST /api/v1/allocations"),),
    ),
    Mutant(
        "the timeline repeats an entry",
        "allocations",
        "orchestrator/allocations/store/rows.py",
        "from allocation_timeline where allocation_id = :id and id > :after order by id limit :limit",
        "from allocation_timeline where allocation_id = :id and id >= :after order by id limit :limit",
        (pages("/api/v1/allocations/{allocation_id}/timeline "),),
    ),
    Mutant(
        "allocations leave a final state",
        "allocations",
        "migrations/functions/allocations/refuse_illegal_transition.sql",
        "('release_failed', 'releasing')\n",
        "('release_failed', 'releasing'), ('released', 'releasing')\n",
        ("tests/schema/test_triggers.py::test_allocations_take_legal_transitions_only[released-releasing]",),
    ),
    Mutant(
        "an allocation's state changes without its guard",
        "allocations",
        "migrations/functions/allocations/refuse_illegal_transition.sql",
        "new.row_version <> old.row_version + 1",
        "new.row_version < old.row_version",
        (("tests/schema/test_triggers.py::test_allocations_take_legal_transitions_only[requested-provisioning]"),),
    ),
    Mutant(
        "an allocation begins in any state",
        "allocations",
        "migrations/schema/allocations.sql",
        "for each row when (new.state <> 'requested')",
        "for each row when (false)",
        ("tests/schema/test_triggers.py::test_allocations_begin_as_requested",),
    ),
    Mutant(
        "a create runs twice",
        "allocations",
        "migrations/schema/allocations.sql",
        "creation_runs_once unique (operation_key, tenant_id)",
        "creation_runs_once unique (operation_key, id)",
        (("tests/schema/test_uniqueness.py::test_a_second_row_with_the_same_key_is_refused[creation_runs_once]"),),
    ),
    Mutant(
        "a version has two transitions",
        "allocations",
        "migrations/schema/allocations.sql",
        "create unique index timeline_transition_once",
        "create index timeline_transition_once",
        (
            (
                "tests/schema/test_uniqueness.py::test_a_second_row_with_the_same_key_is_refused[timeline_t"
                "ransition_once]"
            ),
        ),
    ),
    Mutant(
        "a state waits for nothing",
        "allocations",
        "migrations/schema/allocations.sql",
        "constraint final_waits_for_nothing check (",
        "constraint final_waits_for_nothing check (true or ",
        (check("final_waits_for_nothing"),),
    ),
    Mutant(
        "a release has no deadline",
        "allocations",
        "migrations/schema/allocations.sql",
        "or waits_until is not null)),",
        "or true)),",
        (check("waiting_is_complete"),),
    ),
    Mutant(
        "a create takes another tenant's SSH key",
        "placement",
        "migrations/functions/placement/judge_creates.sql",
        "k.id = any (i.ssh_key_ids) and k.tenant_id = i.tenant_id)",
        "k.id = any (i.ssh_key_ids))",
        (foreign("POST /api/v1/allocations"),),
    ),
    Mutant(
        "every refusal of a batch of creates is stored",
        "placement",
        "orchestrator/allocations/commands/create.py",
        "storable = [index for index, refusal in refusals.items() if refusal.business]",
        "storable = list(refusals)",
        ("tests/api/operations/test_fingerprints_and_limits.py",),
    ),
    Mutant(
        "rights overlap in time",
        "placement",
        "migrations/schema/placement.sql",
        "during with &&) where (booked)",
        "during with =) where (booked)",
        ("tests/schema/test_uniqueness.py::test_claims_exclude_each_other",),
    ),
    Mutant(
        "a unit has two occupants",
        "placement",
        "migrations/schema/placement.sql",
        "(units with &&) where (occupied)",
        "(units with &&) where (occupied and booked)",
        ("tests/schema/test_uniqueness.py::test_claims_exclude_each_other",),
    ),
    Mutant(
        "a claim includes its end",
        "placement",
        "migrations/schema/placement.sql",
        "and not upper_inc(value)",
        "",
        (check("claim_during_half_open"),),
    ),
    Mutant(
        "a claim has any kind of owner",
        "placement",
        "migrations/schema/placement.sql",
        "check (value in ('allocation', 'reservation'))",
        "check (true)",
        (check("claim_owner_kind_check"),),
    ),
    Mutant(
        "claims of an owner have no index",
        "placement",
        "migrations/schema/placement.sql",
        "create index claims_by_owner on claims (owner_id);",
        "",
        ("tests/database/test_indexes.py::test_every_index_has_a_guard_or_a_statement",),
    ),
    Mutant(
        "a closed claim is occupied",
        "placement",
        "migrations/schema/placement.sql",
        "= not (booked or occupied)",
        "= not booked",
        (check("claim_closed_is_over"),),
    ),
    Mutant(
        "a claim is on a node and a resource",
        "placement",
        "migrations/schema/placement.sql",
        "node_id is null or resource_id is null",
        "true",
        (check("claim_is_somewhere"),),
    ),
    Mutant(
        "a create waits for a locked node",
        "placement",
        "migrations/functions/placement/lock_best_node.sql",
        "order by placement_rank, id limit 1 for no key update skip locked",
        "order by placement_rank, id limit 1 for no key update",
        ("tests/placement/test_lock_order.py::test_a_create_passes_a_locked_node",),
    ),
    Mutant(
        "a create that waited for a node wants its class of before",
        "placement",
        "migrations/functions/placement/lock_best_node.sql",
        "if place is null then",
        "if place is distinct from 1 then",
        ("tests/placement/test_lock_order.py::test_a_create_that_waited_for_a_node_takes_it_in_its_new_class",),
    ),
    Mutant(
        "a create is committed after its end when it waited for a quota",
        "placement",
        "migrations/functions/placement/settle_creates.sql",
        "if p_soonest <= clock_timestamp() then",
        "if false then",
        (
            (
                "tests/reservations/test_clock_after_locks.py::"
                "test_a_create_whose_end_passes_during_the_wait_is_not_placed"
            ),
        ),
    ),
    Mutant(
        "a create is placed after its end",
        "placement",
        "migrations/functions/placement/settle_creates.sql",
        "if p_soonest <= stamp then",
        "if false then",
        (
            (
                "tests/reservations/test_clock_after_locks.py::"
                "test_a_create_whose_end_passes_during_the_wait_is_not_placed"
            ),
        ),
    ),
]
