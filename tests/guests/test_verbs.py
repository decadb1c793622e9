"""Verbs of an active allocation: what they change, and what refuses them."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest

from node_agent.protocol import FailureCode, TaskBody
from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.outcomes import Begun, Concluded, Superseded, Waiting
from orchestrator.allocations.states import Verb
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Invalid
from tests.allocations.driving import (
    ADMIN,
    TENANT,
    claim_of,
    clean_up,
    completed,
    events_of,
    failed,
    operation,
    release,
    report,
    row_of,
    rows_of,
    run_with,
    task_of,
)
from tests.allocations.invariants import violations
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import add_tenant, connect, create_allocation, seed
from tests.guests.changing import ACTIVE, NEW_CONNECTION, REBUILT, RESULTS, RUNS, STOPPED, Guest, active


def test_verbs_change_the_guest_and_keep_claim_quota_and_metering(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        before, claim = guest.row, claim_of(database_url, guest.id)
        for verb, state in (
            (Verb.STOP, "stopped"),
            (Verb.START, "running"),
            (Verb.REBOOT, "running"),
            (Verb.REBUILD, "running"),
        ):
            answer = guest.body(await guest.order(verb))
            first_boot = {"status": "unknown", "since": None, "detail": None}
            assert answer["guest"] == {
                "state": guest.row["guest_state"], "verb": verb.value, "failure": None, "first_boot": first_boot, "rescue": None,
            }  # fmt: skip
            assert answer["waits"]["for"] == "worker"
            begun = await guest.begin()
            assert isinstance(begun, Begun)
            task = task_of(database_url, guest.id)
            assert task["type"] == f"allocation.{verb}"
            assert (guest.row["waits_for"], guest.row["waits_until"]) == ("node", task["expires_at"])
            assert isinstance(await guest.finish(), Waiting)
            await guest.report(completed(task, RESULTS[verb]))
            assert await guest.finish() == Concluded(ACTIVE)
            row = guest.row
            assert (row["state"], row["guest_state"], row["guest_verb"]) == ("active", state, None)
            assert (row["waits_for"], row["waits_until"]) == ("tenant", None)
            assert await guest.finish() == Superseded(ACTIVE), "a repetition finds nothing in progress"
            assert violations(database_url) == []
        assert guest.row["connection"] == NEW_CONNECTION, "a rebuild has a new host key and maybe a new port"
        assert guest.row["active_at"] == before["active_at"]
        after = claim_of(database_url, guest.id)
        assert {**after, "fence": 0} == {**claim, "fence": 0}
        assert after["fence"] > claim["fence"], "each verb has another fence"
        wanted = ["allocation.verb_requested", "task.finished", "allocation.verb_completed"]
        assert events_of(database_url, guest.id)[-3:] == wanted
        await release(context, seeded, guest.id)
        await clean_up(context, database_url, guest.id)
        assert (guest.row["state"], guest.row["guest_state"]) == ("released", None)
        assert violations(database_url) == []

    run_with(database_url, way)


def test_a_rebuild_gets_what_the_provision_got_and_the_other_verbs_get_no_login_data(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        first = _parameters(database_url, guest.id)
        await guest.order(Verb.REBUILD)
        await guest.begin()
        rebuild = _parameters(database_url, guest.id)
        assert rebuild.pop("graceful_seconds") == context.limits.release_graceful_seconds
        assert rebuild == first
        await guest.report(completed(task_of(database_url, guest.id), REBUILT))
        await guest.finish()
        await guest.order(Verb.REBOOT)
        await guest.begin()
        assert set(_parameters(database_url, guest.id)) == {"slots", "graceful_seconds", "faults"}

    run_with(database_url, way)


def _parameters(url: str, allocation_id: uuid.UUID) -> dict[str, Any]:
    envelope = task_of(url, allocation_id)["envelope"]
    return TaskBody.model_validate_json(base64.b64decode(envelope["payload"])).parameters


def test_a_verb_with_nothing_to_do_changes_nothing(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)

        async def unchanged(verb: Verb) -> bool:
            version = guest.row["row_version"]
            assert (await guest.order(verb)).status == 202
            return bool(guest.row["row_version"] == version)

        assert await unchanged(Verb.START), "it runs already"
        await guest.perform(Verb.STOP)
        assert await unchanged(Verb.STOP), "it is stopped already"
        assert not await unchanged(Verb.REBOOT)
        assert await unchanged(Verb.REBOOT), "the same verb is in progress"

    run_with(database_url, way)


def test_the_key_of_a_verb_gets_the_same_answer_and_orders_it_once(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        first = await guest.order(Verb.REBOOT, "the-key")
        again = await guest.order(Verb.REBOOT, "the-key")
        assert (again.replayed, again.body) == (True, first.body)
        assert events_of(database_url, guest.id).count("allocation.verb_requested") == 1

    run_with(database_url, way)


def test_an_operators_verb_is_audited_and_needs_no_tenant(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        assert (await order_verb(context, admin_operation(), ADMIN, None, guest.id, Verb.REBOOT)).status == 202
        found = rows_of(
            database_url, "select action, principal_id from audit where subject = %s", f"allocations/{guest.id}"
        )
        assert found == [("allocation.reboot", ADMIN.id)]
        assert (
            row_of(database_url, "select payload from outbox order by id desc limit 1")["payload"]["actor_kind"]
            == "admin"
        )

    run_with(database_url, way)


def test_verbs_are_refused_before_active_after_it_past_the_end_and_for_others(database_url: str) -> None:
    seeded = seed(database_url)
    with connect(database_url) as connection:
        other = add_tenant(connection, "another").tenant_id

    async def way(context: Context) -> None:
        early = Guest(context, database_url, seeded, create_allocation(database_url, seeded))
        guest = await active(context, database_url, seeded)

        def refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
            document = guest.body(answer)
            assert (answer.status, document["code"]) == (status, code)
            return document

        for verb in Verb:
            assert refused(await early.order(verb), 409, "invalid_state")["state"] == "requested"
            stranger = await order_verb(context, operation(seeded), TENANT, other, guest.id, verb)
            refused(stranger, 404, "not_found")
        assert refused(await guest.order(Verb.RESCUE), 409, "invalid_state")["state"] == "no_rescue_system"
        await guest.order(Verb.REBOOT)
        assert refused(await guest.order(Verb.RESCUE), 409, "verb_in_progress")["verb"] == "reboot"
        assert refused(await guest.order(Verb.STOP), 409, "verb_in_progress")["verb"] == "reboot"
        await guest.begin()
        await guest.report(completed(task_of(database_url, guest.id), RUNS))
        await guest.finish()
        with connect(database_url) as connection:
            connection.execute("update allocations set ends_at = clock_timestamp() where id = %s", (guest.id,))
        refused(await guest.order(Verb.REBOOT), 409, "invalid_state")
        await release(context, seeded, guest.id)
        assert refused(await guest.order(Verb.REBOOT), 409, "invalid_state")["state"] == "releasing"
        assert events_of(database_url, early.id) == ["provisioning.requested"]

    run_with(database_url, way)


@pytest.mark.parametrize(
    ("code", "state"), [(FailureCode.GUEST_DEFINITION_FAILED, "unknown"), (FailureCode.TASK_REFUSED, "running")]
)
def test_a_failed_verb_leaves_the_allocation_active_and_says_why(
    database_url: str, code: FailureCode, state: str
) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await guest.order(Verb.REBOOT)
        await guest.begin()
        await guest.report(failed(task_of(database_url, guest.id), code))
        assert await guest.finish() == Concluded(ACTIVE, code=code.value)
        row = guest.row
        assert (row["state"], row["guest_state"], row["guest_verb"], row["guest_failure_code"]) == (
            "active",
            state,
            None,
            code,
        )
        assert row["failure_code"] is None, "the allocation itself has not failed"
        assert events_of(database_url, guest.id)[-1] == "allocation.verb_failed"
        payload = row_of(database_url, "select payload from outbox order by id desc limit 1")["payload"]
        assert (payload["code"], payload["detail"], payload["guest_state"]) == (code.value, "it broke", state)
        assert payload["next_step"]
        # The next verb repairs the guest, and clears the failure.
        await guest.perform(Verb.REBUILD)
        assert (guest.row["guest_state"], guest.row["guest_failure_code"]) == ("running", None)
        assert violations(database_url) == []

    run_with(database_url, way)


def test_a_silent_agent_fails_the_verb_at_its_deadline(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await guest.order(Verb.STOP)
        await guest.begin()
        assert await guest.finish() == Concluded(ACTIVE, code="agent_silent")
        assert guest.row["guest_state"] == "unknown"
        late = await report(
            context, task_of(database_url, guest.id), completed(task_of(database_url, guest.id), STOPPED)
        )
        assert (late.applied, late.reason) == (False, "superseded")
        assert guest.row["guest_state"] == "unknown"
        await guest.perform(Verb.STOP)
        assert guest.row["guest_state"] == "stopped"

    run_with(database_url, way, limits=Limits(provision_seconds_max=0.0))


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.REBOOT])
def test_a_result_must_fit_its_verb(database_url: str, verb: Verb) -> None:
    seeded = seed(database_url)
    wrong = [RUNS if verb is Verb.STOP else STOPPED, {"released": True}, {"connection": {"host": "a b"}}]

    async def way(context: Context) -> None:
        guest = await active(context, database_url, seeded)
        await guest.order(verb)
        await guest.begin()
        for result in wrong:
            with pytest.raises(Invalid):
                await guest.report(completed(task_of(database_url, guest.id), result))
        assert isinstance(await guest.finish(), Waiting)

    run_with(database_url, way)
