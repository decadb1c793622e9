"""The kinds of holders of client certificates: nodes, and agents of sites, whose tables have the same columns by other names."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

_NAMES_OF_AGENTS: Final = {
    "certificate_requests": "site_agent_certificate_requests",
    "enrolment_tokens": "site_agent_tokens",
    "node_certificates": "site_agent_certificates",
    "node_epoch": "agent_epoch",
    "node_id": "agent_id",
    "nodes": "site_agents",
}
# A name after a colon is a parameter, and stays.
_NAME: Final = re.compile(rf"(?<![:\w])(?:{'|'.join(_NAMES_OF_AGENTS)})(?!\w)")


class Holder(StrEnum):
    """A kind of certificate holders. The statements of this folder are written for nodes."""

    NODE = "node"
    SITE_AGENT = "site_agent"

    def sql(self, statement: str) -> str:
        """The statement on the tables of this kind; its parameters keep their names."""
        return statement if self is Holder.NODE else _for_agents(statement)


@lru_cache(maxsize=64)
def _for_agents(statement: str) -> str:
    return _NAME.sub(lambda found: _NAMES_OF_AGENTS[found.group()], statement)
