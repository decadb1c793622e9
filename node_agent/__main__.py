"""`python -m node_agent`: run the agent until SIGTERM, with the settings of `BERTH_*` variables (`settings.py`).

`python -m node_agent --check` checks the host instead and needs no settings: 0 if nothing refuses the host, otherwise 1.
`python -m node_agent --end-guests` ends every guest with the host (`drivers/host_shutdown.py`), with the same settings.
`python -m node_agent --site` runs the agent of a site, with the same settings.
`python -m node_agent --deploy` runs the deploy system of a machine (`deploy_system/process.py`), which imports little: it has
 neither the settings nor the drivers of a node.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

import structlog

from node_agent.problems import AgentProblem

if TYPE_CHECKING:
    from node_agent.drivers.contract import Driver
    from node_agent.settings import Settings
    from node_agent.site.bmcs import Connect

log = structlog.get_logger("node_agent")


def main(choose: Callable[[Settings], Driver] | None = None) -> int:
    """Run the agent with the driver that `choose` constructs; without it, the one of the settings.

    Return 0 after an orderly stop, or 1 with one sentence on standard error.
    """
    from node_agent.agent import Agent
    from node_agent.drivers.choice import choose_driver
    from node_agent.settings import Settings

    async def run() -> None:
        await Agent(Settings(), choose or choose_driver).run()

    return _serve(run)


def end_guests_main(choose: Callable[[Settings], Driver] | None = None) -> int:
    """End every guest of the driver that `choose` constructs; without it, of the one of the settings.

    Return 0 once they were asked and killed, or 1 with one sentence on standard error: an agent runs.
    """
    from node_agent.drivers.choice import choose_driver
    from node_agent.drivers.host_shutdown import end_guests
    from node_agent.settings import Settings

    async def run() -> None:
        await end_guests(Settings(), choose or choose_driver)

    return _serve(run)


def site_main(connect: Connect | None = None) -> int:
    """Run the agent of a site with the client of BMCs that `connect` makes; without it, the Redfish client.

    Return 0 after an orderly stop, or 1 with one sentence on standard error.
    """
    from node_agent.settings import Settings
    from node_agent.site.agent import SiteAgent
    from node_agent.site.bmcs import connect_redfish

    async def run() -> None:
        await SiteAgent(Settings(), connect or connect_redfish).run()

    return _serve(run)


def _serve(run: Callable[[], Coroutine[None, None, None]]) -> int:
    from prometheus_client import disable_created_metrics
    from pydantic import ValidationError

    from berth.process.health_server import CannotListen
    from berth.process.limits.open_files import raise_open_files
    from berth.process.logs import configure_logging

    configure_logging()
    raise_open_files()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # unused series
    problem: BaseException
    try:
        asyncio.run(run())
        return 0
    except* (AgentProblem, CannotListen, OSError, ValidationError) as group:
        problem = _first(group)
    except* Exception as group:
        problem = _first(group)
        log.error("defect", exc_info=problem)
    print(f"node_agent: {_sentence(problem)}", file=sys.stderr)  # noqa: T201 - the last word, for a person
    return 1


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _sentence(error: BaseException) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        from berth.process.settings import describe_wrong_settings

        return describe_wrong_settings(error)
    return str(error) or type(error).__name__


def _start(arguments: list[str]) -> int:
    if "--deploy" in arguments:
        from node_agent.deploy_system.process import main as deploy

        return deploy(arguments)
    if arguments == ["--check"]:
        from node_agent.checks.host import report_host

        return report_host()
    if arguments == ["--end-guests"]:
        return end_guests_main()
    return site_main() if arguments == ["--site"] else main()


if __name__ == "__main__":
    sys.exit(_start(sys.argv[1:]))
