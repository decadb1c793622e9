"""Each check on operators' changes finds what it is for, and nothing where all was well."""

from __future__ import annotations

import dataclasses
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from node_agent.protocol import TaskBody, TaskType
from tests.campaign.fleet_history import Audited, CertificateUse, FleetHistory
from tests.campaign.history import Attempt, Delivery, History, Outcome
from tests.campaign.judging.fleet.judging_fleet import judge_fleet
from tests.campaign.judging.fleet.judging_nodes_end import BACKDATED, check_retired

NODE, OTHER, ALLOCATION = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
RESERVATION, WINDOW = uuid.UUID(int=4), uuid.UUID(int=5)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SKU = "slice"


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def history_of(*events: tuple[str, dict[str, Any]]) -> History:
    """These events, one a second from noon on; slot 0 of the node is unit 10."""
    history = History(seed=0, fleet=FleetHistory({NODE: 10, OTHER: 30}))
    for number, (kind, data) in enumerate(events, start=1):
        moment = NOON + timedelta(seconds=number)
        history.deliveries.append(Delivery(number, number, f"event {number}", kind, None, data, moment))
    return history


def found(history: History) -> set[str]:
    return {violation.check for violation in judge_fleet(history)}


def node(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return f"node.{kind}", {"node_id": str(NODE), **data}


def requested(first: int = 10, last: int = 12, **data: Any) -> tuple[str, dict[str, Any]]:
    return "provisioning.requested", {
        "allocation_id": str(ALLOCATION), "node_id": str(NODE), "units": [[first, last]], **data,
    }  # fmt: skip


def held(starts: float, ends: float) -> tuple[str, dict[str, Any]]:
    claims = [{"node_id": str(NODE), "units": [[10, 12]]}]
    return "reservation.held", {
        "reservation_id": str(RESERVATION), "claims": claims, "starts_at": at(starts), "ends_at": at(ends),
    }  # fmt: skip


def of(kind: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"allocation_id": str(ALLOCATION), **data}


CORDONED = node("cordoned", to="cordoned")
MOVED = (
    "reservation.moved",
    {
        "reservation_id": str(RESERVATION), "from": {"node_id": str(OTHER), "units": [[30, 32]]},
        "to": {"node_id": str(NODE), "units": [[10, 12]]},
    },
)  # fmt: skip


@pytest.mark.parametrize("placing", [requested(), held(0, 9), MOVED, requested(turned_over=True)])
def test_nothing_is_placed_on_a_node_out_of_service(placing: tuple[str, dict[str, Any]]) -> None:
    draining, retired = node("draining", to="draining"), node("retired", to="retired")
    for out in (CORDONED, draining, retired, node("registered"), node("enrolled", state="cordoned")):
        assert "placed in service" in found(history_of(out, placing)), out
    for back in (node("uncordoned", to="active"), node("enrolled", state="active")):
        assert "placed in service" not in found(history_of(CORDONED, back, placing)), back
    assert "placed in service" not in found(
        history_of(("node.cordoned", {"node_id": str(OTHER), "to": "cordoned"}), placing)
    )


def test_what_waited_for_its_units_may_start_on_a_cordoned_node() -> None:
    assert found(history_of(CORDONED, requested(turned_over=False))) == set()


def test_nothing_is_placed_on_a_slot_in_quarantine() -> None:
    out, back = node("slot_quarantined", slot=1), node("slot_returned", slot=1)
    assert found(history_of(out, requested())) == {"placed in service"}
    assert found(history_of(out, requested(12, 14))) == set()
    assert found(history_of(out, back, requested())) == set()


@pytest.mark.parametrize("emptied", [node("drained"), node("retired", to="retired")])
def test_an_emptied_node_has_nothing_left(emptied: tuple[str, dict[str, Any]]) -> None:
    releasing, completed = of("provisioning.releasing.requested"), of("provisioning.releasing.completed")
    assert found(history_of(requested(), emptied)) == {"emptied"}
    assert found(history_of(requested(), releasing, emptied)) == {"emptied"}, "its cleanup is not proven"
    assert found(history_of(requested(), releasing, completed, emptied)) == set()
    assert found(history_of(requested(), of("provisioning.failed"), emptied)) == set()
    assert found(history_of(held(0, 90), emptied)) == {"emptied"}
    cancelled = ("reservation.cancelled", {"reservation_id": str(RESERVATION)})
    assert found(history_of(held(0, 90), cancelled, emptied)) == set()


def maintained(*events: tuple[str, dict[str, Any]], allocations: str = "notify", name: str = "") -> History:
    """A window on the node, or on a resource of it, as its commit was acknowledged."""
    history = history_of(*events)
    content = json.dumps({"subject": "maintenance", "allocations": allocations})
    answer = json.dumps({"window_id": str(WINDOW), "resources": [name or f"node:{NODE}"]})
    history.attempts.append(
        Attempt("window", "commit_window", "operator", content, 0.0, 1.0, Outcome.DONE, answer=answer)
    )
    return history


SCHEDULED = ("maintenance.scheduled", {"window_id": str(WINDOW), "starts_at": at(60), "ends_at": at(120)})
LONGER = of("allocation.updated", changed=["ends_at"], ends_at=at(70), judged_at=at(3))
CANCELLED = ("maintenance.cancelled", {"window_id": str(WINDOW)})


@pytest.mark.parametrize(
    ("events", "allowed"),
    [
        ([SCHEDULED, requested()], False),
        ([SCHEDULED, requested(ends_at=at(50))], True),
        ([SCHEDULED, CANCELLED, requested()], True),
        ([SCHEDULED, requested(20, 22)], True),
        ([SCHEDULED, held(10, 61)], False),
        ([SCHEDULED, held(120, 180)], True),
        ([held(10, 61), SCHEDULED], False),
        ([requested(), SCHEDULED], True),
        ([requested(ends_at=at(50)), SCHEDULED, LONGER], False),
        ([requested(), SCHEDULED, LONGER], True),
        ([SCHEDULED, ("maintenance.scheduled", {**SCHEDULED[1], "window_id": str(WINDOW)})], False),
    ],
)  # fmt: skip
def test_a_window_is_alone_on_its_units(events: list[tuple[str, dict[str, Any]]], allowed: bool) -> None:
    assert ("maintenance alone" not in found(maintained(*events))) == allowed


def test_a_window_that_refuses_has_no_allocation_in_its_way() -> None:
    assert "maintenance alone" in found(maintained(requested(), SCHEDULED, allocations="refuse"))
    beside = maintained(requested(), SCHEDULED, allocations="refuse", name=f"slot:{NODE}:5")
    assert found(beside) == set()


def put(history: History, key: str, began: float, **answer: Any) -> None:
    content = json.dumps({"subject": f"skus/{SKU}"})
    history.attempts.append(
        Attempt(key, "put_sku", "operator", content, began, began + 1, Outcome.DONE, answer=json.dumps(answer))
    )


def audited(key: str | None) -> Audited:
    return Audited(key, "sku.put", f"skus/{SKU}", "ok", {})


def sold() -> History:
    """Prices at 0 and 10, a retirement at 20, a sale again at 30."""
    history = history_of()
    for number, state in enumerate(("active", "active", "retired", "active")):
        put(history, f"put {number}", 10.0 * number, price_version=number + 1, state=state)
        history.fleet.audited.append(audited(f"put {number}"))
    history.fleet.documents[f"skus/{SKU}"] = {"price_version": 4, "state": "active"}
    return history


def create(history: History, began: float, version: int | None = None) -> None:
    content = json.dumps({"sku": SKU})
    history.attempts.append(
        Attempt("create", "create", "buyer", content, began, began + 1, Outcome.DONE, allocation_id=ALLOCATION)
    )
    if version is not None:
        data = {"allocation_id": str(ALLOCATION), "sku": SKU, "price_version": version}
        history.deliveries.append(Delivery(1, 1, "active", "provisioning.active", None, data))


def test_a_change_of_the_catalogue_has_effect_once() -> None:
    assert found(sold()) == set()
    refused = sold()
    refused.fleet.audited.append(dataclasses.replace(audited(None), code="database_unavailable"))
    assert found(refused) == set()
    twice, apart, lost, undone = sold(), sold(), sold(), sold()
    twice.fleet.audited.append(audited("put 1"))
    apart.fleet.audited.append(audited(None))
    lost.fleet.audited.pop()
    undone.fleet.documents[f"skus/{SKU}"] = {"price_version": 5, "state": "active"}
    for history in (twice, apart, lost, undone):
        assert found(history) == {"catalogue"}


@pytest.mark.parametrize(
    ("began", "checks"),
    [(12.0, set()), (19.5, set()), (20.5, set()), (22.0, {"retired, not sold"}), (29.5, set()), (32.0, set())],
)
def test_a_retired_sku_is_not_sold(began: float, checks: set[str]) -> None:
    history = sold()
    create(history, began)
    assert found(history) == checks


def test_a_repetition_of_an_earlier_create_returns_its_response() -> None:
    history = sold()
    create(history, 12.0)
    create(history, 22.0)
    assert found(history) == set()


@pytest.mark.parametrize(
    ("began", "version", "checks"),
    [
        (5.0, 1, set()), (5.0, 2, {"price kept"}), (9.5, 2, set()), (9.5, 1, set()), (12.0, 1, {"price kept"}),
        (12.0, 2, set()), (12.0, 3, {"price kept"}), (-5.0, 7, set()),
    ],
)  # fmt: skip
def test_a_price_is_that_of_the_create(began: float, version: int, checks: set[str]) -> None:
    history = sold()
    create(history, began, version)
    assert found(history) == checks


def test_a_revoked_certificate_is_accepted_for_nothing() -> None:
    def used(serial: str, asked: float, is_accepted: bool) -> CertificateUse:
        return CertificateUse(NODE, serial, "/node/v1/key-set", asked, asked + 0.1, is_accepted)

    history = history_of()
    content = json.dumps({"subject": f"nodes/{NODE}"})
    history.attempts += [
        Attempt("revoke", "revoke", "operator", content, began, began + 1, Outcome.DONE) for began in (5.0, 9.0)
    ]
    history.fleet.uses = [
        used("old", 1, True), used("old", 5.5, True), used("old", 7, False), used("new", 8, True), used("new", 11, True)
    ]  # fmt: skip
    assert found(history) == set()
    history.fleet.uses.append(used("old", 9, True))
    assert found(history) == {"revoked"}


def issued(serial: str, predecessor: str | None = None) -> tuple[str, dict[str, Any]]:
    return node("certificate_issued", serial=serial, predecessor=predecessor)


def test_a_revoked_certificate_has_no_successor() -> None:
    revoked, enrolled = node("certificates_revoked"), node("enrolled", state="active")
    assert found(history_of(issued("a"), issued("b", "a"), revoked, enrolled, issued("c"), issued("d", "c"))) == set()
    assert found(history_of(issued("a"), revoked, issued("b", "a"))) == {"revoked"}
    assert found(history_of(issued("a"), enrolled, issued("b", "a"))) == {"revoked"}
    assert found(history_of(issued("a"), issued("b", "a"), issued("c", "a"))) == {"revoked"}


def test_a_node_is_in_the_end_as_it_was_made() -> None:
    history = history_of(node("enrolled", state="active"), CORDONED)
    history.fleet.states[NODE] = "cordoned"
    assert found(history) == set()
    history.fleet.states[NODE] = "active"
    assert found(history) == {"node state"}
    acknowledged = history_of()
    acknowledged.fleet.states[NODE] = "maintenance"
    for key, state, expected in (("1", "registered", set()), ("2", "cordoned", {"node state"}), ("3", "active", set())):
        answer = json.dumps({"id": str(NODE), "state": state})
        content = json.dumps({"subject": f"nodes/{NODE}"})
        acknowledged.attempts.append(
            Attempt(key, "cordon", "operator", content, float(key), 9.0, Outcome.DONE, answer=answer)
        )
        assert found(acknowledged) == expected


def test_a_retired_node_takes_no_task() -> None:
    history = history_of(node("retired", to="retired"))

    def body(seconds: float) -> TaskBody:
        signed_at = NOON + timedelta(seconds=seconds)
        return TaskBody(
            task_id=uuid.uuid4(), type=TaskType.HEALTH_PROBE, node_id=NODE, node_epoch=1, allocation_id=None, fence=1,
            parameters={}, not_before=signed_at - BACKDATED, expires_at=signed_at, key_id="key",
        )  # fmt: skip

    assert list(check_retired(history, [body(0.5)])) == []
    assert len(list(check_retired(history, [body(1.5)]))) == 1
