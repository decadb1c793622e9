"""Each switch of a BMC of the rack does what it is named for, what it changed survives its process, and then it works again."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.machines.bmcs import ATTEMPT, LATE_SECONDS, KeptService
from tests.campaign.machines.place import FIRST_PASSWORD, USER, Place
from tests.campaign.schedule import BMC_KINDS
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.machine import MANAGER, SYSTEM
from tests.support.bmc.resources import ACCOUNTS
from tests.support.bmc.service import Manner, Reply, Request

RESET, CD = f"{SYSTEM}/Actions/ComputerSystem.Reset", f"{MANAGER}/VirtualMedia/CD1"
BOOT_CD = {"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}}


class Played:
    """A BMC, its clock, and a client that logs in with the password that it has."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.place = Place(directory / "machine-1", 1, 0)
        self.place.directory.mkdir(exist_ok=True)
        self.service = KeptService(self.place, self.clock)

    def ask(self, method: str, path: str, body: Any = None, password: str = FIRST_PASSWORD) -> Reply:
        login = base64.b64encode(f"{USER}:{password}".encode()).decode()
        etag = self.service.etag(path)
        headers = {
            "authorization": f"Basic {login}",
            ATTEMPT: "3 7 metal.power_on 1.5",
            **({"if-match": etag} if etag else {}),
        }
        return self.service.handle(Request(method, path, headers, b"" if body is None else json.dumps(body).encode()))

    def power(self, kind: str) -> Reply:
        return self.ask("POST", RESET, {"ResetType": kind})

    def switch(self, name: str | None) -> None:
        self.place.remove("faults") if name is None else self.place.write("faults", {"switch": name})
        self.service.tick()

    def state(self) -> str:
        return str(json.loads(self.ask("GET", SYSTEM).body)["PowerState"])

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.service.tick()


@pytest.fixture
def bmc(tmp_path: Path) -> Played:
    return Played(tmp_path)


def silent(bmc: Played) -> None:
    assert bmc.power("On").manner is Manner.SILENT
    assert bmc.ask("GET", SYSTEM).manner is Manner.SILENT
    assert bmc.service.machine.power == "On", "a command takes effect"


def busy(bmc: Played) -> None:
    assert (bmc.power("On").status, bmc.ask("GET", SYSTEM).status, bmc.service.machine.power) == (503, 503, "Off")


def error(bmc: Played) -> None:
    assert (bmc.power("On").status, bmc.ask("GET", SYSTEM).status, bmc.service.machine.power) == (500, 500, "On")


def refuses_password(bmc: Played) -> None:
    assert bmc.ask("PATCH", f"{ACCOUNTS}/1", {"Password": "second-secret"}).status == 204
    assert bmc.ask("GET", SYSTEM, password="second-secret").status == 401
    bmc.wait(LATE_SECONDS + 0.1)
    bmc.switch(None)
    assert bmc.ask("GET", SYSTEM, password="second-secret").status == 200


def lies(bmc: Played) -> None:
    assert (bmc.power("On").status, bmc.ask("PATCH", SYSTEM, BOOT_CD).status) == (204, 204)
    assert (bmc.state(), bmc.service.machine.override["target"]) == ("Off", "None")


def delays(bmc: Played) -> None:
    assert (bmc.power("On").status, bmc.state()) == (204, "Off")
    bmc.wait(LATE_SECONDS + 0.1)
    assert bmc.state() == "On"


def queues(bmc: Played) -> None:
    assert bmc.power("On").manner is Manner.SILENT
    bmc.switch(None)
    assert (bmc.power("ForceOff").status, bmc.state()) == (204, "Off")
    bmc.wait(LATE_SECONDS + 0.1)
    assert bmc.state() == "On", "a queued On arrives after Off"


def forgets_boot(bmc: Played) -> None:
    assert bmc.ask("PATCH", SYSTEM, BOOT_CD).status == 204
    assert bmc.service.machine.override["target"] == "None"


def ejects(bmc: Played) -> None:
    assert bmc.ask("POST", f"{CD}/Actions/VirtualMedia.InsertMedia", {"Image": "http://192.0.2.1/d.iso"}).status == 204
    bmc.service.tick()
    assert bmc.service.machine.image is None


def flaps(bmc: Played) -> None:
    assert {bmc.state() for _ in range(2)} == {"On", "Off"}
    assert bmc.service.machine.power == "Off"


def changes_certificate(bmc: Played) -> None:
    assert bmc.service.certificate == 2
    bmc.switch(None)
    assert bmc.service.certificate == 1


PROVEN: Mapping[str, Callable[[Played], None]] = {
    "bmc_silent": silent, "bmc_busy": busy, "bmc_error": error, "bmc_refuses_password": refuses_password, "bmc_lies": lies,
    "bmc_delays": delays, "bmc_queues": queues, "boot_forgotten": forgets_boot, "medium_ejected": ejects, "power_flaps": flaps,
    "certificate_changed": changes_certificate,
}  # fmt: skip


def test_every_kind_is_proven() -> None:
    assert set(PROVEN) == {kind.value for kind in BMC_KINDS}


@pytest.mark.parametrize("name", PROVEN)
def test_a_bmc_fails_while_it_is_switched_so_and_works_afterwards(bmc: Played, name: str) -> None:
    bmc.switch(name)
    PROVEN[name](bmc)
    bmc.switch(None)
    bmc.wait(2 * LATE_SECONDS)
    password = bmc.service.machine.passwords[USER]
    assert bmc.ask("POST", RESET, {"ResetType": "ForceOff"}, password).status == 204
    assert bmc.ask("POST", RESET, {"ResetType": "On"}, password).status == 204
    assert json.loads(bmc.ask("GET", SYSTEM, password=password).body)["PowerState"] == "On"
    assert [line["switch"] for line in bmc.place.seen() if line["what"] == "switch"][-2:] == [name, ""]


def test_what_a_bmc_has_done_survives_its_process(bmc: Played, tmp_path: Path) -> None:
    bmc.ask("PATCH", f"{ACCOUNTS}/1", {"Password": "second-secret"})
    bmc.ask("POST", RESET, {"ResetType": "On"}, "second-secret")
    later = Played(tmp_path)
    assert (later.service.machine.power, later.service.machine.passwords) == ("On", {USER: "second-secret"})
    assert later.service.kept.boot == 1
    assert later.ask("GET", SYSTEM, password="second-secret").status == 200
    later.ask("PATCH", f"{ACCOUNTS}/1", {"Password": "third-secret"}, "second-secret")
    assert Played(tmp_path).service.machine.passwords == {USER: "third-secret"}
    assert [line["password"] for line in later.place.seen() if line["what"] == "password"] == ["third-secret"]


def test_a_bmc_leaves_evidence_of_each_command_with_its_attempt(bmc: Played) -> None:
    bmc.power("On")
    bmc.place.write("ended", {"boot": 1})
    bmc.service.tick()
    seen = [(line["what"], line.get("state") or line.get("attempt")) for line in bmc.place.seen()]
    assert seen == [("power", "On"), ("command", "3 7 metal.power_on 1.5"), ("power", "Off")]


def test_the_end_of_an_earlier_system_does_not_switch_a_machine_off(bmc: Played) -> None:
    bmc.power("On")
    bmc.place.write("ended", {"boot": 0})
    bmc.service.tick()
    assert bmc.service.machine.power == "On"
