"""`python -m node_agent --deploy [--medium FILE]`: run the deploy system of this machine.

Status 0: power the machine off. Status 1: the same, after the one sentence on the console was read. Status 3: start the SSH
server of the tenant, whose machine this is now.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from berth.process.limits.open_files import raise_open_files
from berth.process.logs import configure_logging
from node_agent.deploy_system.effects.networking import bring_up
from node_agent.deploy_system.effects.tools import real_host
from node_agent.deploy_system.loop import DeploySettings, DeploySystem, Ending
from node_agent.deploy_system.performing import work_of_machine
from node_agent.deploy_system.problems import DeployEnded
from node_agent.wiping.build import agent_version

log = structlog.get_logger("deploy_system")

MEDIUM: Final = "/run/berth/medium.json"
ROOT_KEYS: Final = "/etc/berth/root-keys.pem"
TPM: Final = Path("/dev/tpmrm0")
STATUS: Final = {Ending.POWER_OFF: 0, Ending.HAND_OVER: 3}
"""Exit status; deploy/metal/deploy-init reads it."""


def main(arguments: Sequence[str]) -> int:
    """Run until the machine is to be powered off; return the exit status, after one sentence on standard error for 1."""
    parser = argparse.ArgumentParser(prog="python -m node_agent", description="run the deploy system of this machine")
    parser.add_argument("--deploy", action="store_true", required=True)
    medium = os.environ.get("BERTH_DEPLOY_MEDIUM", MEDIUM)
    parser.add_argument("--medium", type=Path, default=Path(medium), help="configuration of the medium")
    parser.add_argument(
        "--root-keys", type=Path, default=Path(os.environ.get("BERTH_ROOT_KEYS_FILE", ROOT_KEYS)),
        help="PEM public keys of the root that signs key sets",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    configure_logging()
    raise_open_files()
    settings = DeploySettings(
        medium=chosen.medium, root_keys_file=chosen.root_keys, host=real_host(), bring_up=bring_up,
        work=work_of_machine,
        tpm_tcti=f"device:{TPM}" if TPM.exists() else None, version=agent_version(),
    )  # fmt: skip
    return run(settings)


def run(settings: DeploySettings) -> int:
    """Run one deploy system; its exit status."""

    async def live() -> Ending:
        return await DeploySystem(settings).run()

    try:
        return STATUS[asyncio.run(live())]
    except DeployEnded as problem:
        sentence = str(problem)
    except Exception as error:
        log.error("defect", exc_info=error)
        sentence = f"defect: {type(error).__name__}: {error}"
    print(f"deploy system: {sentence}", file=sys.stderr)  # noqa: T201 - the last word, for the console
    return 1
