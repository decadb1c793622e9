"""`python -m node_agent`: run the agent until SIGTERM, with the settings of `BERTH_*` variables (`settings.py`).

`python -m node_agent --check` checks the host instead and needs no settings: 0 if nothing refuses the host, otherwise 1.
`python -m node_agent --site` runs the agent of a site, with the same settings.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine

import structlog
from prometheus_client import disable_created_metrics
from pydantic import ValidationError

from berth.process.health_server import CannotListen
from berth.process.logs import configure_logging
from berth.process.settings import describe_wrong_settings
from node_agent.agent import Agent
from node_agent.checks.host import report_host
from node_agent.drivers.choice import choose_driver
from node_agent.drivers.contract import Driver
from node_agent.problems import AgentProblem
from node_agent.settings import Settings
from node_agent.site.agent import SiteAgent
from node_agent.site.bmcs import Connect, connect_redfish

log = structlog.get_logger("node_agent")


async def _run(settings: Settings, choose: Callable[[Settings], Driver]) -> None:
    await Agent(settings, choose).run()


async def _run_site(settings: Settings, connect: Connect) -> None:
    await SiteAgent(settings, connect).run()


def main(choose: Callable[[Settings], Driver] = choose_driver) -> int:
    """Run the agent with the driver that `choose` constructs.

    Return 0 after an orderly stop, or 1 with one sentence on standard error.
    """
    return _serve(lambda: _run(Settings(), choose))


def site_main(connect: Connect = connect_redfish) -> int:
    """Run the agent of a site with the client of BMCs that `connect` makes.

    Return 0 after an orderly stop, or 1 with one sentence on standard error.
    """
    return _serve(lambda: _run_site(Settings(), connect))


def _serve(run: Callable[[], Coroutine[None, None, None]]) -> int:
    configure_logging()
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
    if isinstance(error, ValidationError):
        return describe_wrong_settings(error)
    return str(error) or type(error).__name__


if __name__ == "__main__":
    modes = {"--check": report_host, "--site": site_main}
    sys.exit(modes.get(" ".join(sys.argv[1:]), main)())
