"""A tenant at the console of its machine: what it gets, what it is refused, and when it ends."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from orchestrator.allocations.states import Verb
from tests.consoles.talking import attached, begun, ending, message, output_until, refused
from tests.sites.consoles.staging import ConsoleSites, Rented
from tests.sites.stage import USER, Site
from tests.support.waiting import wait_for


def joined(rented: Rented) -> Any:
    return attached(rented.stage.api_url, rented.key, rented.allocation)


def ended_at_once(rented: Rented) -> str | None:
    """The reason of a session that ends by itself."""
    with joined(rented) as socket:
        return ending(socket)[1]


def test_bytes_pass_both_ways_and_the_audit_has_begin_and_end(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        with joined(rented) as socket:
            session = begun(socket)["session_id"]
            socket.send(b"hello\r")
            output_until(socket, b"said hello\r\n")
        row = rented.ended(session)
        assert (row["reason"], row["bytes_to_guest"], row["envelope"]) == ("tenant_ended", 6, None)
        assert str(row["site_id"]) == site.id
        wait_for(rented.is_free, "the BMC has no session")
        actions = stage.rows(
            "select action from audit_pending where subject = %s order by id", f"allocations/{rented.allocation}"
        )
        assert [one["action"] for one in actions][-2:] == ["allocation.console", "allocation.console_end"]
        assert site.agents[0].metric("berth_site_agent_consoles_total", reason="tenant_ended") >= 1


def test_the_log_is_refused_by_name(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        answer = httpx.get(
            f"{stage.api_url}/api/v1/allocations/{rented.allocation}/console",
            headers={"authorization": f"Bearer {rented.key}"}, timeout=30,
        )  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (409, "console_log_absent")
        assert rented.sessions() == []


def test_without_a_pinned_host_key_there_is_no_console(stage: ConsoleSites, site: Site) -> None:
    with stage.rented() as rented:
        rented.put(site, console_host_key="")
        status, document = refused(stage.api_url, rented.key, rented.allocation)
        assert (status, document["code"]) == (409, "console_not_set_up")
        assert rented.machine.logins() == 0, "nothing was asked of the BMC"


def test_one_session_for_each_machine(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented, joined(rented) as socket:
        begun(socket)
        status, document = refused(stage.api_url, rented.key, rented.allocation)
        assert (status, document["code"]) == (409, "console_busy")


def test_a_session_can_follow_another_at_once(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        for number in range(3):
            with joined(rented) as socket:
                session = begun(socket)["session_id"]
                socket.send(b"number %d\r" % number)
                output_until(socket, b"said number %d\r\n" % number)
            assert rented.ended(session)["reason"] == "tenant_ended"


REFUSALS: dict[str, dict[str, Any]] = {
    "bmc_console_missing": {"announced": {"ServiceEnabled": False}},
    "bmc_console_shared": {"announced": {"SharedWithManagerCLI": True, "ConsoleEntryCommand": "console com2"}},
    "bmc_hot_key_unknown": {"announced": {"HotKeySequenceDisplay": "see the manual"}},
    "bmc_credentials_refused": {"refuses_password": True},
    "bmc_console_refused": {"sessions_max": 0},
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_bmc_without_a_safe_console_is_a_named_end(stage: ConsoleSites, site: Site, reason: str) -> None:
    with stage.rented(site, **REFUSALS[reason]) as rented:
        assert ended_at_once(rented) == reason
        assert rented.console.open == []


def test_a_changed_host_key_is_refused_until_an_operator_decides(stage: ConsoleSites, site: Site) -> None:
    with stage.rented() as rented, stage.rented() as other:
        rented.put(site, console_host_key=other.console.host_key)
        assert ended_at_once(rented) == "bmc_host_key_changed"
        assert rented.console.logins == []
        rented.pin(site)
        with joined(rented) as socket:
            begun(socket)
            socket.send(b"x\r")
            output_until(socket, b"said x\r\n")


CHANGES: dict[str, dict[str, Any]] = {
    "no host key": {"console_host_key": ""},
    "shared": {"console_shared": True},
    "address": {"url": "https://127.0.0.1:9"},
    "account": {"username": "other"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_bmc_ends_the_session(stage: ConsoleSites, site: Site, change: str) -> None:
    with stage.rented(site) as rented, joined(rented) as socket:
        begun(socket)
        rented.pin(site, **CHANGES[change])
        assert ending(socket)[1] == "guest_ended"
        wait_for(rented.is_free, "the BMC has no session")


def test_an_operator_allows_a_shared_console(stage: ConsoleSites, site: Site) -> None:
    shared = {"SharedWithManagerCLI": True, "ConsoleEntryCommand": "console com2"}
    with stage.rented(announced=shared) as rented:
        rented.put(site, console_shared=True)
        with joined(rented) as socket:
            begun(socket)
            socket.send(b"~.reset\r")
            output_until(socket, b"said ~reset\r\n")
        assert (rented.console.entered, bytes(rented.console.commands)) == (["console com2"], b"")


def test_a_refused_login_is_not_tried_again(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site, refuses_password=True) as rented:
        assert [ended_at_once(rented) for _ in range(3)] == ["bmc_credentials_refused"] * 3
        assert rented.console.logins == [False], "a tenant cannot lock the account of the BMC"


def test_a_login_that_redfish_refused_is_not_tried_again(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        rented.machine.service.machine.passwords[USER] = "changed-at-the-bmc"
        assert ended_at_once(rented) == "bmc_credentials_refused"
        first = rented.machine.logins()
        assert [ended_at_once(rented) for _ in range(2)] == ["bmc_credentials_refused"] * 2
        assert rented.machine.logins() == first, "a tenant cannot lock the account of the BMC"


def test_another_account_is_tried_after_a_refusal(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site, refuses_password=True) as rented:
        assert ended_at_once(rented) == "bmc_credentials_refused"
        rented.console.refuses_password = False
        passwords = rented.machine.service.machine.passwords
        passwords["other"] = passwords[USER]
        rented.pin(site, username="other")
        with joined(rented) as socket:
            begun(socket)
            socket.send(b"x\r")
            output_until(socket, b"said x\r\n")


def test_a_bmc_that_dies_ends_the_session(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented, joined(rented) as socket:
        begun(socket)
        socket.send(b"x\r")
        output_until(socket, b"said x\r\n")
        stage.background.loop.call_soon_threadsafe(rented.console.die)
        assert ending(socket)[1] == "console_closed"


def test_a_flood_beside_a_slow_reader_is_dropped_and_counted(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented, joined(rented) as socket:
        session = begun(socket)["session_id"]
        socket.send(b"print 30000000\r")
        wait_for(lambda: rented.console.printed >= 30_000_000, "the BMC has printed all")
        assert message(socket)["type"] == "dropped"
        socket.close()
        assert rented.ended(session)["bytes_dropped"] > 0


def test_a_task_about_the_machine_ends_the_session_first(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented, joined(rented) as socket:
        begun(socket)
        socket.send(b"x\r")
        output_until(socket, b"said x\r\n")
        assert stage.done(rented.node_id, "look")["task"]["outcome"] == "completed"
        socket.send(b"y\r")
        output_until(socket, b"said y\r\n")
        open_then: list[int] = []
        rented.machine.service.machine.options.restart_effect = lambda: open_then.append(len(rented.console.open))
        stage.request(rented.node_id, "reset")
        assert ending(socket)[1] == "guest_ended"
        wait_for(lambda: open_then, "the BMC is reset")
        assert open_then == [0], "the console was closed before"


def test_a_verb_ends_the_session_and_no_other_begins_until_it_has_ended(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        machine = rented.machine.service.machine
        machine.power, machine.options.graceful_ignored = "On", True  # so that the run lasts
        with joined(rented) as socket:
            begun(socket)
            rented.note_inspected(site)
            rented.order(Verb.STOP)
            assert ending(socket)[1] == "guest_ended"
        wait_for(rented.is_free, "the BMC has no session")
        status, document = refused(stage.api_url, rented.key, rented.allocation)
        assert (status, document["code"], document["state"]) == (409, "invalid_state", "run_open")


@pytest.mark.parametrize("guest_state", ["rescue", "unknown"])
def test_a_machine_that_may_run_a_deploy_system_has_no_console(
    stage: ConsoleSites, site: Site, guest_state: str
) -> None:
    with stage.rented(site) as rented:
        with joined(rented) as socket:
            begun(socket)
            stage.execute("update allocations set guest_state = %s where id = %s", guest_state, rented.allocation)
            assert ending(socket)[1] == "guest_ended"
        status, document = refused(stage.api_url, rented.key, rented.allocation)
        assert (status, document["state"]) == (409, guest_state)


def test_the_release_ends_the_session(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented, joined(rented) as socket:
        begun(socket)
        answer = httpx.post(
            f"{stage.api_url}/api/v1/allocations/{rented.allocation}/release",
            headers={"authorization": f"Bearer {rented.key}", "idempotency-key": "release-1"}, timeout=30,
        )  # fmt: skip
        assert answer.status_code == 202, answer.text
        assert ending(socket)[1] == "released"
        wait_for(rented.is_free, "the BMC has no session")
        assert refused(stage.api_url, rented.key, rented.allocation)[1]["state"] == "releasing"


def test_what_a_session_printed_is_stored_nowhere(stage: ConsoleSites, site: Site) -> None:
    with stage.rented(site) as rented:
        with joined(rented) as socket:
            session = begun(socket)["session_id"]
            socket.send(b"swordfish\r")
            output_until(socket, b"said swordfish\r\n")
        rented.ended(session)
        kept = site.agents[0].log.read_bytes()
        assert b"swordfish" not in kept
        assert base64.b64encode(b"swordfish")[:10] not in kept
        assert "swordfish" not in str(rented.sessions())


def test_the_command_line_reaches_a_machine_as_it_reaches_a_guest(stage: ConsoleSites, site: Site) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    with stage.rented(site) as rented:
        environment = {**inherited, "BERTH_API_URL": stage.api_url, "BERTH_API_KEY": rented.key}
        command = [sys.executable, "-m", "berth.cli", "alloc", "console", str(rented.allocation)]
        typed = subprocess.run(
            [*command, "--attach", "--stdin"], input=b"hello\r", env=environment, capture_output=True, timeout=60
        )
        assert (typed.returncode, typed.stdout) == (0, b"said hello\r\n"), typed.stderr
        log = subprocess.run(command, env=environment, capture_output=True, timeout=60)
        assert (log.returncode, b"attach to it" in log.stderr) == (1, True), log
