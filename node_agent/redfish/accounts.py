"""Change of the account's password. What the BMC accepts afterwards is tried, whatever it answered to the change."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import Working
from node_agent.redfish.problems import (
    Busy,
    CredentialsRefused,
    NotSupported,
    OutcomeUnknown,
    Unreachable,
    ValueNotAllowed,
)
from node_agent.redfish.session import Session
from node_agent.redfish.tasks import finished

ACCOUNTS_MAX: Final = 64


async def rotate(session: Session, old: str, new: str) -> Working:
    """See `Bmc.rotate`. At most two logins are refused by it, so that no lockout of three or more is reached."""
    if not 8 <= len(new) <= 256 or not new.isascii() or not new.isprintable() or new == old:
        raise ValueNotAllowed(
            "the new password must have 8 to 256 printable ASCII characters and differ from the old one"
        )
    if not await session.works(old):
        # An earlier change may have worked without an answer.
        working = Working.NEW if await session.works(new) else Working.NEITHER
    else:
        await _change(session, new)
        working = await _working(session, old, new)
    if working in (Working.NEW, Working.BOTH):
        await session.use(new)
    elif working is Working.OLD:
        await session.use(old)
    return working


async def _change(session: Session, new: str) -> None:
    """Send the change. No answer is no error here: the trial that follows decides."""
    root = await session.root()
    service = await session.get(root.link("AccountService"), "the account service")
    accounts, _ = await session.members(service.link("Accounts"), "accounts", ACCOUNTS_MAX)
    own = next((account for account in accounts if account.text("UserName") == session.username), None)
    if own is None:
        raise NotSupported(f"the BMC lists no account {session.username}")
    try:
        answer = await session.patch(own.path, {"Password": new})
        await finished(session, answer, session.wire.deadlines.command_seconds)
    except (OutcomeUnknown, CredentialsRefused):
        pass  # a 401 to the poll of its task, or to the change's own repetition, may be the effect of the change


async def _working(session: Session, old: str, new: str) -> Working:
    trials: list[bool | None] = []
    for password in (new, old):
        try:
            trials.append(await session.works(password))
        except (Unreachable, Busy):
            trials.append(None)
    match trials:
        case [True, True]:
            return Working.BOTH
        case [True, _]:
            return Working.NEW
        case [False, True]:
            return Working.OLD
        case [False, False]:
            return Working.NEITHER
        case _:
            raise OutcomeUnknown("the password change was sent, and the BMC does not answer which password works")
