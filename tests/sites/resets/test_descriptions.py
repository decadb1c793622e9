"""What a BMC says right after its reset: it may not know its machine yet, and refuses logins while it starts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from node_agent.redfish.contract import PowerState
from node_agent.redfish.problems import CredentialsRefused, NotBack
from node_agent.site import resets
from node_agent.site.problems import NotDone

MACHINE, OTHER = "machine", "other"
ON, OFF, UNKNOWN = PowerState.ON, PowerState.OFF, PowerState.UNKNOWN
Said = tuple[str, PowerState] | CredentialsRefused


class Saying:
    """A BMC that says one thing after another, the last one again and again."""

    def __init__(self, *said: Said) -> None:
        self._said = list(said)
        self.resets = 0

    async def describe(self) -> Any:
        """The next one."""
        said = self._said.pop(0) if len(self._said) > 1 else self._said[0]
        if isinstance(said, CredentialsRefused):
            raise said
        return SimpleNamespace(uuid=said[0], power_state=said[1])

    async def reset_bmc(self) -> None:
        """Counted."""
        self.resets += 1


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resets, "PAUSE_SECONDS", 0.0)


def after(*said: Said) -> Any:
    """What a reset returns, of a machine that was on."""
    bmc: Any = Saying((MACHINE, ON), *said)
    try:
        return asyncio.run(resets.reset_bmc(bmc))
    finally:
        assert bmc.resets == 1


def test_a_manager_that_does_not_know_its_machine_yet_is_asked_again() -> None:
    found = after(("", UNKNOWN), (MACHINE, UNKNOWN), ("", ON), (MACHINE, ON))
    assert (found.uuid, found.power_state) == (MACHINE, ON)


@pytest.mark.parametrize("said", [("", ON), (MACHINE, UNKNOWN)])
def test_one_that_never_knows_it_is_not_back(said: Said) -> None:
    with pytest.raises(NotBack, match="does not say which machine"):
        after(said)


@pytest.mark.parametrize(("said", "code"), [((OTHER, ON), "other_machine"), ((MACHINE, OFF), "power_changed")])
def test_what_it_says_of_another_machine_or_power_counts_at_once(said: Said, code: str) -> None:
    with pytest.raises(NotDone) as ended:
        after(("", UNKNOWN), said)
    assert ended.value.code == code


def test_a_login_that_is_refused_afterwards_is_no_reason_to_try_another_password() -> None:
    with pytest.raises(NotBack, match="refuses the credentials"):
        after(CredentialsRefused("a login was refused"))
