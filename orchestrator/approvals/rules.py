"""Which operator may decide about a request of another. Pure."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from uuid import UUID

from orchestrator.approvals.refusals import SecondOperatorRequired


@dataclass(frozen=True, slots=True)
class Person:
    """An operator, as authenticated: the id of its key or token's subject, its role, and its owner if it is known."""

    id: UUID
    role: str
    owner: str | None
    break_glass: bool


def are_same(one: Person, other: Person, line: Set[UUID]) -> bool:
    """Whether two principals are one person: the same key, the same owner, or keys that rotations lead to.

    `line`: the ids of all keys that rotations connect with the key of `one`, itself included.
    """
    if one.id == other.id or other.id in line:
        return True
    return one.owner is not None and other.owner is not None and one.owner.casefold() == other.owner.casefold()


def require_second(requester: Person, approver: Person, line: Set[UUID], *, others: int) -> None:
    """Raise `SecondOperatorRequired` if the approver is the requester, or one of them a break-glass key without need.

    `others`: the live keys that could approve beside these two, break-glass keys not counted.
    """
    if are_same(requester, approver, line):
        raise SecondOperatorRequired("you requested this; another operator approves or rejects it, you may withdraw it")
    if (requester.break_glass or approver.break_glass) and others:
        raise SecondOperatorRequired(
            f"a break-glass key counts as an operator only while no other is left, and {others} other keys can decide;"
            " have an operator with one of these decide"
        )
