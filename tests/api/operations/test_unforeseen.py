"""After an unforeseen error the commit may have happened: the answer says `unknown`, and how to find out (P12)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import orchestrator.operations.execution
from orchestrator.crash_points import CrashPoint
from orchestrator.keyvalue import commands as commit_transactions
from orchestrator.placement import placing
from orchestrator.reservations.commands import cancel as cancel_reservation
from orchestrator.reservations.commands import confirm as confirm_reservation
from orchestrator.reservations.commands import hold as hold_resources
from tests.api.calling import Caller, Place, fresh, one_gpu, problem, ssh_key
from tests.api.reservations.reserving import HOLDER, hold, seat
from tests.keyvalue.committing import Keys, put
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place
from tests.support.public_api import module_tenant as tenant

__all__ = ["place", "tenant"]


def fail_after_commit(*labels: Any) -> None:
    """As `reach` and `reach_commit`: what comes next, once it is committed, fails."""
    label = labels[-1]
    if label == "after_commit" or (isinstance(label, CrashPoint) and label.name.endswith("AFTER_COMMIT")):
        raise RuntimeError("unforeseen")


def open_then_done(caller: Caller, method: str, path: str, body: Any, patch: pytest.MonkeyPatch) -> httpx.Response:
    """The answer to a repetition, after one that says unknown, with the key, although it is done."""
    key = fresh("unforeseen")
    told = problem(caller.call(method, path, body, key=key), 500, "internal")
    assert (told["outcome"], told["operation_key"]) == ("unknown", key)
    patch.undo()
    return caller.call(method, path, body, key=key)


def is_replayed(answer: httpx.Response) -> bool:
    """Whether it is the stored answer of a write that was done."""
    return answer.is_success and bool(answer.headers["idempotent-replayed"] == "true")


def test_a_create_that_was_committed(
    api: PublicApi, tenant: Caller, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = one_gpu(tenant, place)
    monkeypatch.setattr(placing, "reach", fail_after_commit)
    assert is_replayed(open_then_done(tenant, "POST", "/allocations", body, monkeypatch))


def test_a_hold_that_was_committed(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"resources": [seat(api)], "holder_id": HOLDER}
    monkeypatch.setattr(hold_resources, "reach", fail_after_commit)
    assert is_replayed(open_then_done(tenant, "POST", "/reservations", body, monkeypatch))


def test_a_confirm_that_was_committed(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hold(tenant, seat(api))["reservation_id"]
    monkeypatch.setattr(confirm_reservation, "reach", fail_after_commit)
    assert is_replayed(
        open_then_done(tenant, "POST", f"/reservations/{held}/confirm", {"holder_id": HOLDER}, monkeypatch)
    )


def test_a_cancel_that_was_committed(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hold(tenant, seat(api))["reservation_id"]
    monkeypatch.setattr(cancel_reservation, "reach", fail_after_commit)
    assert is_replayed(
        open_then_done(tenant, "POST", f"/reservations/{held}/cancel", {"holder_id": HOLDER}, monkeypatch)
    )


def test_a_write_that_was_committed(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"name": fresh("key"), "public_key": ssh_key()}
    monkeypatch.setattr(orchestrator.operations.execution, "reach_commit", fail_after_commit)
    assert is_replayed(open_then_done(tenant, "POST", "/ssh-keys", body, monkeypatch))


def test_a_transaction_that_was_committed(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    key = fresh("a-request-of-some-length")
    monkeypatch.setattr(commit_transactions, "reach", fail_after_commit)
    told = problem(Keys(tenant).try_commit([put(b"k", b"1")], request_id=key), 500, "internal")
    assert (told["outcome"], told["operation_key"]) == ("unknown", key)
    monkeypatch.undo()
    assert Keys(tenant).status(key)["status"] == "committed"


def test_the_short_way_itself(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails around the commands is no more certain."""

    async def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("orchestrator.edge.gate.Gate.answer", fail)
    told = problem(
        tenant.call("POST", "/reservations", {"resources": ["x"], "holder_id": HOLDER}, key="k"), 500, "internal"
    )
    assert (told["outcome"], told["operation_key"]) == ("unknown", "k")


def test_a_read_changes_nothing(api: PublicApi, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("orchestrator.tenants.ssh_key_endpoints.ssh_keys.list_ssh_keys", fail)
    told = problem(tenant.call("GET", "/ssh-keys"), 500, "internal")
    assert told["outcome"] == "not_done"
