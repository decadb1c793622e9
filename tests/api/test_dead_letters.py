"""Dead letters at the admin API: listed, shown, retried and discarded, on the record; closed to tenants."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calling import Caller, fresh, new_tenant, problem, refusal
from tests.support.public_api import PublicApi

PATH = "/admin/dead-letters"


def bury(api: PublicApi, consumer: str, version: int, *, reason: str = "refused") -> str:
    """A dead letter; its id."""
    row = api.database.execute(
        "insert into dead_letters (consumer, version, event_id, event_type, reason, detail, excerpt, tries, first_at)"
        " values (%s, %s, uuidv7(), 'task.finished', %s, 'INVALID_ARGUMENT: no', '{\"a\": 1}', 5, clock_timestamp())"
        " returning id",
        (consumer, version, reason),
    ).fetchone()
    assert row is not None
    return str(row[0])


def audit_of(admin: Caller, letter: str) -> list[dict[str, Any]]:
    """What operators did with it."""
    return admin.every("/admin/audit", 500, subject=f"dead-letters/{letter}")


def test_letters_are_listed_by_consumer_and_state_page_by_page(api: PublicApi, admin: Caller) -> None:
    consumer = fresh("consumer")
    made = [bury(api, consumer, version) for version in (3, 1, 2)]
    listed = admin.every(PATH, 2, consumer=consumer)
    assert [letter["id"] for letter in listed] == made
    assert admin.get(f"{PATH}/{made[0]}") == listed[0]
    assert (listed[0]["version"], listed[0]["tries"], listed[0]["state"]) == (3, 5, "dead")
    admin.make(f"{PATH}/{made[1]}/discard", {"reason": "not needed"})
    assert [letter["id"] for letter in admin.every(PATH, 500, consumer=consumer, state="dead")] == [made[0], made[2]]
    assert [letter["id"] for letter in admin.every(PATH, 500, consumer=consumer, state="discarded")] == [made[1]]


def test_a_retry_is_asked_for_once_and_written_down(api: PublicApi, admin: Caller) -> None:
    letter = bury(api, fresh("consumer"), 7)
    first = admin.call("POST", f"{PATH}/{letter}/retry", key="retry-1")
    assert first.status_code == 202
    asked_at = first.json()["retry_asked_at"]
    assert asked_at is not None
    repeated = admin.call("POST", f"{PATH}/{letter}/retry", key="retry-1")
    assert (repeated.json(), repeated.headers["idempotent-replayed"]) == (first.json(), "true")
    assert admin.make(f"{PATH}/{letter}/retry")["retry_asked_at"] == asked_at
    entries = audit_of(admin, letter)
    assert [entry["action"] for entry in entries] == ["dead_letter.retry", "dead_letter.retry"]
    assert entries[0]["detail"]["version"] == 7


def test_a_discarded_letter_takes_no_further_word(api: PublicApi, admin: Caller) -> None:
    letter = bury(api, fresh("consumer"), 8)
    admin.make(f"{PATH}/{letter}/retry")
    done = admin.make(f"{PATH}/{letter}/discard", {"reason": "a test's"})
    assert (done["state"], done["retry_asked_at"]) == ("discarded", None)
    assert audit_of(admin, letter)[-1]["detail"]["reason"] == "a test's"
    for path, body in ((f"{PATH}/{letter}/retry", None), (f"{PATH}/{letter}/discard", {"reason": "again"})):
        assert problem(admin.call("POST", path, body), 409, "invalid_state")["state"] == "discarded"


def test_unknown_letters_and_strangers_are_refused(api: PublicApi, admin: Caller, stranger: Caller) -> None:
    letter = bury(api, fresh("consumer"), 9)
    for path, body in (("retry", None), ("discard", {"reason": "x"})):
        problem(admin.call("POST", f"{PATH}/{uuid.uuid4()}/{path}", body), 404, "not_found")
        problem(stranger.call("POST", f"{PATH}/{letter}/{path}", body), 401, "unauthenticated")
        problem(new_tenant(admin).call("POST", f"{PATH}/{letter}/{path}", body), 403, "forbidden")
    problem(admin.call("GET", f"{PATH}/{uuid.uuid4()}"), 404, "not_found")
    problem(new_tenant(admin).call("GET", PATH), 403, "forbidden")
    assert admin.get(f"{PATH}/{letter}")["state"] == "dead"


@pytest.mark.parametrize(
    "body", [None, {}, {"reason": ""}, {"reason": 1}, {"reason": "x", "more": 1}, {"reason": "\0"}]
)
def test_a_discard_without_a_reason_is_refused(api: PublicApi, admin: Caller, body: Any) -> None:
    letter = bury(api, fresh("consumer"), 10)
    problem(admin.call("POST", f"{PATH}/{letter}/discard", body), 422, "invalid")
    assert admin.get(f"{PATH}/{letter}")["state"] == "dead"


@pytest.mark.parametrize("query", [{"state": "gone"}, {"consumer": "a b"}, {"statee": "dead"}, {"limit": 0}])
def test_a_list_refuses_what_it_does_not_know(admin: Caller, query: dict[str, Any]) -> None:
    assert refusal(admin.call("GET", PATH, **query)) == (422, "invalid")
