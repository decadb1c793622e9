"""Four eyes: an action of one operator takes effect once, in the transaction in which a second operator approves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, at_once, fresh, new_tenant, problem, refusal
from tests.approvals.operators import (
    STATEMENT,
    Operator,
    forget_operators,
    four_eyes_api,
    new_operator,
    stuck_allocation,
)
from tests.databases import copied_database
from tests.support.public_api import PublicApi

EVENTS = """
select event_type, payload from (select id, event_type, subject, payload from outbox
                                 union all select outbox_id, event_type, subject, payload from log) e
where subject = %s order by id
"""


@pytest.fixture(scope="module")
def module_api(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    with (
        copied_database(postgres_server, migrated_template) as url,
        four_eyes_api(url, tmp_path_factory.mktemp("authority"), approvals_max=20) as running,
    ):
        yield running


@pytest.fixture
def api(module_api: PublicApi) -> PublicApi:
    """The application; beside the first operator's key, which has no owner, no operator's is live."""
    forget_operators(module_api)
    module_api.database.execute(
        "update approvals set state = 'expired', ended_at = clock_timestamp(), waits_for = null, waits_since = null,"
        " waits_until = null, secret_hash = null where state = 'pending'"
    )
    return module_api


@pytest.fixture
def ann(api: PublicApi) -> Operator:
    return new_operator(api, "ann")


@pytest.fixture
def ben(api: PublicApi) -> Operator:
    return new_operator(api, "ben")


def requested(operator: Operator, allocation_id: str, *, key: str | None = None) -> dict[str, Any]:
    """The approval that a force-cleanup waits for."""
    answer = operator.caller.call("POST", f"/admin/allocations/{allocation_id}/force-cleanup", STATEMENT, key=key)
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


def state_of(api: PublicApi, allocation_id: str) -> Any:
    row = api.database.execute("select state from allocations where id = %s", (allocation_id,)).fetchone()
    assert row is not None
    return row[0]


def events_of(api: PublicApi, approval: dict[str, Any]) -> list[str]:
    """The types of an approval's events, in order."""
    found = api.database.execute(EVENTS, (f"approvals/{approval['approval_id']}",)).fetchall()
    assert all(payload["approval_id"] == approval["approval_id"] for _, payload in found)  # type: ignore[index]
    return [str(kind) for kind, _ in found]


def audited(api: PublicApi, subject: str, action: str) -> list[Any]:
    return [
        row
        for row in api.admin.every("/admin/audit", 500, subject=subject, action=action)
        if row["code"] == "ok"
    ]  # fmt: skip


def test_a_request_has_no_effect_and_says_what_it_waits_for(api: PublicApi, ann: Operator) -> None:
    allocation = stuck_allocation(api)
    approval = requested(ann, allocation)
    assert state_of(api, allocation) == "releasing"
    assert (approval["action"], approval["subject"]) == ("allocation.force_cleanup", f"allocations/{allocation}")
    assert (approval["state"], approval["waits_for"], approval["parameters"]["reason"]) == (
        "pending", "approval", STATEMENT["reason"],
    )  # fmt: skip
    assert approval["requested_by"] == {"principal_id": ann.id, "role": "admin", "owner": "ann", "break_glass": False}
    assert approval["waits_since"] < approval["waits_until"]
    assert approval["roles_required"] == ["admin", "fleet"]
    assert api.admin.get(f"/admin/approvals/{approval['approval_id']}") == approval
    assert approval in api.admin.every("/admin/approvals", 500, state="pending")
    (row,) = audited(api, f"approvals/{approval['approval_id']}", "approval.request")
    assert (row["principal"]["id"], row["status"]) == (ann.id, 202)
    assert events_of(api, approval) == ["approval.requested"]


def test_a_second_operator_approves_and_the_audit_names_both(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    approval = requested(ann, allocation)
    answer = ben.decide("approve", approval["approval_id"], {"reason": "the rack is empty"})
    assert answer.status_code == 200, answer.text
    ended = answer.json()
    assert (ended["state"], ended["decided_by"]["owner"], ended["decision_reason"], ended["waits_until"]) == (
        "approved", "ben", "the rack is empty", None,
    )  # fmt: skip
    assert ended["result"] == {"allocation_id": allocation, "from_state": "releasing"}
    assert state_of(api, allocation) == "released"
    (row,) = audited(api, f"allocations/{allocation}", "allocation.force_cleanup")
    assert (row["principal"]["id"], row["detail"]["approval_id"]) == (ben.id, approval["approval_id"])
    assert (row["detail"]["requested_by"]["principal_id"], row["detail"]["approved_by"]["principal_id"]) == (
        ann.id, ben.id,
    )  # fmt: skip
    assert len(audited(api, f"approvals/{approval['approval_id']}", "approval.approve")) == 1
    assert events_of(api, approval) == ["approval.requested", "approval.approved"]


def test_the_requester_does_not_approve_with_the_same_or_another_key(api: PublicApi, ann: Operator) -> None:
    allocation = stuck_allocation(api)
    approval_id = requested(ann, allocation)["approval_id"]
    for same in (ann, new_operator(api, "ann"), new_operator(api, "Ann")):
        problem(same.decide("approve", approval_id), 403, "second_operator_required")
        problem(same.decide("reject", approval_id, {"reason": "no"}), 403, "second_operator_required")
    assert state_of(api, allocation) == "releasing"
    assert new_operator(api, "ann").decide("withdraw", approval_id).json()["state"] == "withdrawn"


def test_keys_without_an_owner_that_a_rotation_connects_are_one_person(api: PublicApi) -> None:
    old, new = new_operator(api), new_operator(api)
    api.database.execute("update api_keys set replaced_by = %s where id = %s", (new.id, old.id))
    first, second = stuck_allocation(api), stuck_allocation(api)
    problem(new.decide("approve", requested(old, first)["approval_id"]), 403, "second_operator_required")
    problem(old.decide("approve", requested(new, second)["approval_id"]), 403, "second_operator_required")
    assert new_operator(api).decide("approve", api.admin.get("/admin/approvals", state="pending")["items"][0][
        "approval_id"
    ]).status_code == 200  # fmt: skip


@pytest.mark.parametrize("role", ["viewer", "support", "finance"])
def test_a_role_without_the_action_does_not_approve_it(api: PublicApi, ann: Operator, role: str) -> None:
    approval_id = requested(ann, stuck_allocation(api))["approval_id"]
    other = new_operator(api, "cleo", role)
    for verb, body in (("approve", None), ("reject", {"reason": "no"}), ("withdraw", None)):
        problem(other.decide(verb, approval_id, body), 403, "role_required")
    assert other.caller.get(f"/admin/approvals/{approval_id}")["state"] == "pending"


def test_fleet_approves_a_cleanup_and_no_change_of_a_key(api: PublicApi, ann: Operator, ben: Operator) -> None:
    fleet = new_operator(api, "fay", "fleet")
    assert fleet.decide("approve", requested(ann, stuck_allocation(api))["approval_id"]).status_code == 200
    revocation = ann.caller.call("DELETE", f"/admin/api-keys/{ben.id}").json()
    refused = problem(fleet.decide("approve", revocation["approval_id"]), 403, "role_required")
    assert refused["roles_required"] == ["admin"]


def test_two_approvals_at_once_execute_once(api: PublicApi, ann: Operator, ben: Operator) -> None:
    cleo = new_operator(api, "cleo")
    for _ in range(3):
        allocation = stuck_allocation(api)
        approval_id = requested(ann, allocation)["approval_id"]
        answers = at_once(
            *[lambda one=one, approval_id=approval_id: one.decide("approve", approval_id) for one in (ben, cleo)]
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        late = next(answer for answer in answers if answer.status_code == 409)
        assert problem(late, 409, "invalid_state")["state"] == "approved"
        assert len(audited(api, f"allocations/{allocation}", "allocation.force_cleanup")) == 1


def test_repetitions_with_their_keys_get_the_first_answers(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    asked, decided = fresh("key"), fresh("key")
    approval = requested(ann, allocation, key=asked)
    assert requested(ann, allocation, key=asked) == approval
    first = ben.decide("approve", approval["approval_id"], key=decided)
    again = ben.decide("approve", approval["approval_id"], key=decided)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    assert requested(ann, allocation, key=asked) == approval, "the request's own answer stays"
    problem(ben.decide("approve", approval["approval_id"]), 409, "invalid_state")
    assert len(audited(api, f"allocations/{allocation}", "allocation.force_cleanup")) == 1


def test_one_request_waits_for_each_object_and_action(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    approval = requested(ann, allocation)
    answer = ben.caller.call("POST", f"/admin/allocations/{allocation}/force-cleanup", STATEMENT)
    assert problem(answer, 409, "approval_pending")["approval_id"] == approval["approval_id"]
    ann.decide("withdraw", approval["approval_id"])
    assert requested(ben, allocation)["approval_id"] != approval["approval_id"]


def test_requests_at_once_for_one_object_leave_one_that_waits(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    path = f"/admin/allocations/{allocation}/force-cleanup"
    asking = [lambda one=one: one.caller.call("POST", path, STATEMENT) for one in (ann, ben)]
    answers = at_once(*asking * 3)
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 5]


def test_an_object_that_changed_meanwhile_is_judged_at_the_approval(
    api: PublicApi, ann: Operator, ben: Operator
) -> None:
    allocation = stuck_allocation(api)
    approval_id = requested(ann, allocation)["approval_id"]
    closed = (
        "update claims set closed_at = clock_timestamp(), booked = false, occupied = false, waits_for = null, waits_since = null,"
        " waits_until = null where owner_id = %s"
    )
    api.database.execute(closed, (allocation,))
    refused = problem(ben.decide("approve", approval_id), 409, "invalid_state")
    assert "nothing to clean up" in refused["detail"]
    assert audited(api, f"allocations/{allocation}", "allocation.force_cleanup") == []
    assert api.admin.get(f"/admin/approvals/{approval_id}")["state"] == "pending", "it waits on, until its deadline"


def test_what_is_not_possible_now_is_not_recorded(api: PublicApi, ann: Operator) -> None:
    running = api.admin.every("/admin/approvals", 500)
    path = "/admin/allocations/01900000-0000-7000-8000-000000000001/force-cleanup"
    problem(ann.caller.call("POST", path, STATEMENT), 404, "not_found")
    problem(ann.caller.call("POST", path, {"reason": "x"}), 422, "invalid")
    assert api.admin.every("/admin/approvals", 500) == running


def test_a_rejected_or_withdrawn_request_has_no_effect(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    rejected = requested(ann, allocation)
    problem(ben.decide("withdraw", rejected["approval_id"]), 403, "forbidden")
    problem(ben.decide("reject", rejected["approval_id"]), 422, "invalid")
    assert ben.decide("reject", rejected["approval_id"], {"reason": "it runs"}).json()["decision_reason"] == "it runs"
    withdrawn = requested(ann, allocation)
    assert ann.decide("withdraw", withdrawn["approval_id"]).json()["state"] == "withdrawn"
    for approval in (rejected, withdrawn):
        problem(ben.decide("approve", approval["approval_id"]), 409, "invalid_state")
    assert state_of(api, allocation) == "releasing"
    assert events_of(api, rejected) == ["approval.requested", "approval.rejected"]
    assert events_of(api, withdrawn) == ["approval.requested", "approval.withdrawn"]


def test_a_request_past_its_deadline_is_not_approved(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    approval = requested(ann, allocation)
    api.database.execute(
        "update approvals set waits_until = clock_timestamp() where id = %s", (approval["approval_id"],)
    )
    for verb, body in (("approve", None), ("reject", {"reason": "no"})):
        assert problem(ben.decide(verb, approval["approval_id"], body), 409, "invalid_state")["state"] == "expired"
    assert state_of(api, allocation) == "releasing"
    assert requested(ben, allocation)["approval_id"] != approval["approval_id"], "it does not block a new request"
    assert api.admin.get(f"/admin/approvals/{approval['approval_id']}")["state"] == "expired"
    assert events_of(api, approval) == ["approval.requested", "approval.expired"]


def test_a_request_of_a_key_that_was_revoked_is_not_executed(api: PublicApi, ann: Operator, ben: Operator) -> None:
    allocation = stuck_allocation(api)
    approval_id = requested(ann, allocation)["approval_id"]
    api.database.execute("update api_keys set revoked_at = clock_timestamp() where id = %s", (ann.id,))
    assert "revoked" in problem(ben.decide("approve", approval_id), 409, "invalid_state")["detail"]
    assert ben.decide("reject", approval_id, {"reason": "stolen key"}).status_code == 200
    assert state_of(api, allocation) == "releasing"


def test_the_requests_that_wait_are_bounded(api: PublicApi, ann: Operator) -> None:
    body = {"name": "x", "role": "viewer"}
    answers = [ann.caller.call("POST", "/admin/api-keys", body) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [*[202] * 20, 503]
    assert refusal(answers[-1]) == (503, "approval_table_full")


def test_tenants_neither_see_nor_decide(api: PublicApi, ann: Operator) -> None:
    tenant = new_tenant(api.admin)
    approval_id = requested(ann, stuck_allocation(api))["approval_id"]
    for method, path in (
        ("GET", ""), ("GET", f"/{approval_id}"), ("POST", f"/{approval_id}/approve"), ("POST", f"/{approval_id}/withdraw"),
    ):  # fmt: skip
        assert problem(tenant.call(method, f"/admin/approvals{path}"), 403, "forbidden")["outcome"] == "not_done"


def test_unknown_approvals_and_states(api: PublicApi, ben: Operator) -> None:
    missing = "01900000-0000-7000-8000-000000000001"
    for verb, body in (("approve", None), ("reject", {"reason": "no"}), ("withdraw", None)):
        problem(ben.decide(verb, missing, body), 404, "not_found")
    problem(api.admin.call("GET", f"/admin/approvals/{missing}"), 404, "not_found")
    assert problem(api.admin.call("GET", "/admin/approvals", state="unknown"), 422, "invalid")["outcome"] == "not_done"


class TestBreakGlass:
    """A break-glass key counts as an operator only while no other is left; its use is an event."""

    def test_it_approves_for_the_last_operator(self, api: PublicApi) -> None:
        api.database.execute("update api_keys set revoked_at = clock_timestamp() where name = 'first'")
        try:
            only, emergency = new_operator(api, "ann"), new_operator(api, "on-call", break_glass=True)
            allocation = stuck_allocation_of(only, api)
            approval_id = requested(only, allocation)["approval_id"]
            answer = emergency.decide("approve", approval_id)
            assert answer.status_code == 200, answer.text
            assert answer.json()["decided_by"]["break_glass"] is True
            use = api.database.execute(EVENTS, (f"api-keys/{emergency.id}",)).fetchall()
            assert [kind for kind, _ in use] == ["key.break_glass_used"]
            (row,) = [
                row
                for row in only.caller.every("/admin/audit", 500, subject=f"allocations/{allocation}")
                if row["action"] == "allocation.force_cleanup" and row["code"] == "ok"
            ]  # fmt: skip
            assert row["detail"]["approved_by"]["break_glass"] is True
        finally:
            api.database.execute("update api_keys set revoked_at = null where name = 'first'")

    def test_it_does_not_while_another_operator_can(self, api: PublicApi, ann: Operator) -> None:
        emergency = new_operator(api, "on-call", break_glass=True)
        approval_id = requested(ann, stuck_allocation(api))["approval_id"]
        assert "1 other keys" in problem(
            emergency.decide("approve", approval_id), 403, "second_operator_required"
        )["detail"]  # fmt: skip
        new_operator(api, "vic", "viewer")
        assert "1 other keys" in problem(
            emergency.decide("approve", approval_id), 403, "second_operator_required"
        )["detail"], "only keys that could approve count"  # fmt: skip

    def test_a_request_with_it_needs_no_other_operator_either(self, api: PublicApi, ann: Operator) -> None:
        emergency = new_operator(api, "on-call", break_glass=True)
        approval_id = requested(emergency, stuck_allocation(api))["approval_id"]
        problem(ann.decide("approve", approval_id), 403, "second_operator_required")
        assert ann.decide("reject", approval_id, {"reason": "ask me"}).status_code == 200

    def test_two_keys_of_the_last_operator_are_one_person(self, api: PublicApi) -> None:
        api.database.execute("update api_keys set revoked_at = clock_timestamp() where name = 'first'")
        try:
            only, own = new_operator(api, "ann"), new_operator(api, "ann", break_glass=True)
            approval_id = requested(only, stuck_allocation_of(only, api))["approval_id"]
            assert problem(own.decide("approve", approval_id), 403, "second_operator_required")["outcome"] == "not_done"
        finally:
            api.database.execute("update api_keys set revoked_at = null where name = 'first'")


def stuck_allocation_of(operator: Operator, api: PublicApi) -> str:
    """As `stuck_allocation`, arranged by this operator."""
    return stuck_allocation(PublicApi(Caller(api.admin.http, operator.caller.key), api.database, api.services))
