"""Why a deploy system ends. The sentence goes to the serial console; the machine is powered off after it."""

from __future__ import annotations

from node_agent.problems import AgentProblem


class DeployEnded(AgentProblem):
    """The deploy system can do nothing more on this machine, and starting again with the same medium does not help."""
