"""A loop of a site's agent that dies takes the agent with it, and the agent says why; started again, it serves."""

from __future__ import annotations

import pytest

from tests.sites.stage import LOOPS, Site
from tests.support.waiting import wait_for


@pytest.mark.quick("_act", "serve")
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.rpartition(".")[2])
def test_a_loop_that_dies_ends_the_agent_with_a_message(site: Site, loop: str) -> None:
    agent = site.agent("first", start=False)
    agent.start(dies_in=LOOPS[loop])
    wait_for(agent.died, f"the agent ends when {loop} fails", 30)
    assert agent.child.process is not None
    assert agent.child.process.returncode == 1
    assert agent.says("planted"), agent.log.read_text()
    agent.start()
    site.wait_for_holder("first")
