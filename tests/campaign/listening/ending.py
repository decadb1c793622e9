"""After the run: every key is read once more, and every subscriber reaches the end of its events."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign.history import History
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.keyvalue.clients import KeyClient
from tests.campaign.listening.judging_sessions import check_reached_the_end
from tests.campaign.listening.subscribers import HttpSubscriber
from tests.support.waiting import pause, read_until

END_SECONDS_MAX = 40.0
LOOK_SECONDS = 0.3


async def read_to_the_end(
    keepers: Sequence[KeyClient], subscribers: Sequence[HttpSubscriber], history: History
) -> list[Violation]:
    """A violation for each subscriber that does not reach the end in time, and for each client that cannot read its keys."""
    for subscriber in subscribers:
        subscriber.read_to_the_end()

    async def behind() -> list[Violation]:
        await pause(LOOK_SECONDS)
        return list(check_reached_the_end(history))

    found = await read_until(behind, lambda missing: not missing, END_SECONDS_MAX)
    for keeper in keepers:
        if not await read_until(keeper.read_all, bool, END_SECONDS_MAX):
            found.append(Violation("state at the end", f"{keeper.name} cannot read its keys"))
    return found
