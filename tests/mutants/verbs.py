"""Mutants of verbs on images, tenants and allocations: read, change and delete."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_KEYS = "tests/api/allocations/test_allocations.py::test_an_allocation_names_the_ssh_keys_that_it_was_created_with"
_ONE_SHAPE = "tests/api/test_openapi_names.py::test_every_list_has_one_shape"
_UPDATE = "tests/verbs/test_update_allocation.py"
_IMAGES = "tests/verbs/test_images.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "an allocation names another tenant's SSH key",
        "allocations",
        "migrations/functions/allocations/ssh_key_ids_of.sql",
        " and k.tenant_id = p_tenant",
        "",
        (_KEYS,),
    ),
    Mutant(
        "an allocation names all SSH keys of its tenant",
        "allocations",
        "migrations/functions/allocations/ssh_key_ids_of.sql",
        "k.public_key = own.line and k.tenant_id = p_tenant",
        "k.tenant_id = p_tenant",
        (_KEYS,),
    ),
    Mutant(
        "an image is deleted while an allocation needs it",
        "catalogue",
        "orchestrator/catalogue/image_store.py",
        "c.owner_kind = 'allocation' and a.image = :name",
        "c.owner_kind = 'allocation' and false",
        (f"{_IMAGES}::test_what_needs_an_image_keeps_it",),
    ),
    Mutant(
        "an image is deleted while a node's task needs it",
        "catalogue",
        "orchestrator/catalogue/image_store.py",
        "t.state in ('queued', 'dispatched')",
        "false",
        (f"{_IMAGES}::test_what_needs_an_image_keeps_it",),
    ),
    Mutant(
        "a SKU takes an image while it is deleted",
        "catalogue",
        "orchestrator/catalogue/store.py",
        "deleted_at is null for share",
        "deleted_at is null",
        (f"{_IMAGES}::test_a_sku_that_takes_the_image_waits_for_its_deletion",),
    ),
    Mutant(
        "tenants list retired images",
        "catalogue",
        "orchestrator/catalogue/image_store.py",
        "name > :after and state = 'active' and",
        "name > :after and",
        (f"{_IMAGES}::test_tenants_list_what_a_create_may_name_without_its_url",),
    ),
    Mutant(
        "the name of another tenant's allocation is changed",
        "allocations",
        "orchestrator/allocations/commands/update.py",
        "lock_allocation(tx, allocation_id, tenant_id)",
        "lock_allocation(tx, allocation_id)",
        (f"{_UPDATE}::test_only_the_tenant_and_operators_on_the_record_change_it",),
    ),
    Mutant(
        "a released allocation is changed",
        "allocations",
        "orchestrator/allocations/commands/update.py",
        "if subject.state in FINAL_STATES:",
        "if False:",
        (f"{_UPDATE}::test_a_final_record_does_not_change",),
    ),
    Mutant(
        "equal values change an allocation",
        "allocations",
        "orchestrator/allocations/store/changing.py",
        "name is distinct from coalesce(cast(:name as text), name)",
        "true",
        (f"{_UPDATE}::test_name_and_labels_change_once_per_key",),
    ),
    Mutant(
        "a list has no pages",
        "log",
        "orchestrator/log/admin_endpoints.py",
        "response_model=Page[LogConsumer]",
        "response_model=list[LogConsumer]",
        (_ONE_SHAPE,),
    ),
    Mutant(
        "a list takes any limit",
        "operations",
        "orchestrator/http/paging.py",
        "ge=1, le=LIMIT_MAX",
        "ge=1",
        (_ONE_SHAPE,),
    ),
]
