"""Mutants of verbs on images, tenants and allocations: read, change and delete."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_KEYS = "tests/api/allocations/test_allocations.py::test_an_allocation_names_the_ssh_keys_that_it_was_created_with"

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
]
