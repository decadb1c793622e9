"""Node ids of the parametrized tests that catch many mutants."""

from __future__ import annotations


def foreign(operation: str) -> str:
    """The generated test of another tenant's ids, for this operation."""
    name = "test_existing_ids_of_another_tenant_are_answered_as_ids_that_never_existed"
    return f"tests/api/tenants/test_foreign_ids.py::{name}[{operation}]"


def pages(case: str) -> str:
    """The test of a list's pages."""
    return f"tests/api/test_pages.py::test_pages_are_the_whole_list[{case}]"


def branch(violation: str) -> str:
    """The test of a violation that one operand finds."""
    return f"tests/berth/test_every_branch.py::test_a_violation_that_one_operand_finds_is_found[{violation}]"


def check(constraint: str) -> str:
    """The test of what a check constraint refuses."""
    return f"tests/schema/test_checks.py::test_check_refuses_what_it_forbids[{constraint}]"
