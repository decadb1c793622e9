"""Any order of an operator's changes, allocations and deadlines leaves a node in the state that the model of it says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.nodes.states import TRANSITIONS, NodeState
from tests.api.calling import Caller, new_place, new_tenant, one_gpu
from tests.maintenance.windows import at, rows
from tests.nodes.states.draining import pass_deadline, sweep
from tests.support.public_api import PublicApi

_CLOSE = "update claims set booked = false, occupied = false, closed_at = now() where owner_id = %s returning 1"
_STORED = "select state from nodes where id = %s"


class Nodes(RuleBasedStateMachine):
    """Every rule is one request, one end of a claim, or one deadline."""

    api: PublicApi
    tenant: Caller
    told = 0

    @initialize()
    def register(self) -> None:
        type(self).told += 1
        self.place = new_place(self.api.admin, self.api.database)
        self.state, self.overdue, self.drained = "active", False, False
        self.rented: list[str] = []
        self.order: str | None = None

    def change(self, verb: str, body: Any = None) -> Any:
        ((before,),) = rows(self.api, _STORED, self.place.node["id"])
        answer = self.api.admin.call("POST", f"/admin/nodes/{self.place.node['id']}/{verb}", body)
        ((after,),) = rows(self.api, _STORED, self.place.node["id"])
        assert before == after or (NodeState(before), NodeState(after)) in TRANSITIONS
        return answer

    @rule()
    def cordon(self) -> None:
        answer = self.change("cordon")
        assert answer.status_code == (409 if self.state == "retired" else 200)
        if self.state == "active":
            self.state = "cordoned"

    @rule()
    def uncordon(self) -> None:
        answer = self.change("uncordon")
        assert answer.status_code == (409 if self.state == "retired" else 200)
        if self.state != "retired":
            self.state, self.order, self.overdue, self.drained = "active", None, False, False

    @rule(hours=st.none() | st.integers(1, 3))
    def drain(self, hours: int | None) -> None:
        deadline = None if hours is None else at(hours)
        answer = self.change("drain", None if deadline is None else {"deadline": deadline})
        assert answer.status_code == (409 if self.state == "retired" else 200)
        if self.state == "retired" or (self.state == "draining" and deadline is None):
            return
        self.state, self.order, self.overdue, self.drained = "draining", deadline, False, False

    @rule()
    def retire(self) -> None:
        answer = self.change("retire", {"reason": "old"})
        assert answer.status_code == (409 if self.rented else 200)
        if not self.rented:
            self.state, self.order, self.overdue, self.drained = "retired", None, False, False

    @rule()
    def rent(self) -> None:
        answer = self.tenant.call("POST", "/allocations", one_gpu(self.tenant, self.place))
        assert (answer.status_code == 201) is (self.state == "active" and len(self.rented) < 8), answer.text
        if answer.status_code == 201:
            self.rented.append(answer.json()["allocation_id"])

    @precondition(lambda self: self.rented)
    @rule()
    def vacate(self) -> None:
        assert rows(self.api, _CLOSE, self.rented.pop()) == [(1,)]
        self.api.database.execute("select refresh_node_fit(%s)", (self.place.node["id"],))

    @precondition(lambda self: self.order is not None and not self.overdue and not self.drained)
    @rule()
    def come_to_the_deadline(self) -> None:
        pass_deadline(self.api, self.place)
        self.look()

    @rule()
    def look(self) -> None:
        is_over = rows(
            self.api, "select from node_drains where node_id = %s and waits_until <= now()", self.place.node["id"]
        )
        expected = None
        if self.state == "draining" and not self.drained:
            expected = "drained" if not self.rented else "overdue" if is_over else None
        assert sweep(self.api, self.place) == expected
        self.drained, self.overdue = self.drained or expected == "drained", self.overdue or expected == "overdue"

    @invariant()
    def is_shown_as_the_model_says(self) -> None:
        shown = self.api.admin.get(f"/admin/nodes/{self.place.node['id']}")
        assert shown["state"] == self.state
        assert (shown["drain"] is not None) is (self.state == "draining")
        assert shown["drained"] is (self.state == "draining" and not self.rented)
        if shown["drain"] is not None:
            drain = shown["drain"]
            assert (drain["deadline"] is not None, drain["overdue_at"] is not None) == (
                self.order is not None, self.overdue,
            )  # fmt: skip
            assert (drain["drained_at"] is not None) is self.drained
            assert {one["owner"] for one in drain["remaining"]} == {f"allocations/{one}" for one in self.rented}


# Long. tests/nodes/states has each transition in `make test`.
@pytest.mark.full
def test_any_story_of_a_node_is_that_of_its_model(api: PublicApi) -> None:
    Nodes.api, Nodes.tenant = api, new_tenant(api.admin)
    run_state_machine_as_test(
        Nodes,
        settings=settings(
            max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert Nodes.told >= 12
