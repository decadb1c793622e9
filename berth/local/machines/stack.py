"""A local stack whose nodes are machines of a site: no agents on them, one at the site, and listeners that machines reach."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from berth.client import Client
from berth.local import fleet, secret_files
from berth.local.authority import Authority, name_listeners
from berth.local.leftovers import record_of
from berth.local.machines.media import with_root_keys
from berth.local.machines.networks import HOST
from berth.local.machines.plan import AGENT, REGION, SITE
from berth.local.options import StackOptions
from berth.local.parts import Part
from berth.local.processes import Endpoints, ProcessPlan, orchestrator_plan
from berth.local.stack import Stack
from berth.process.sealed_passwords import new_key_pem, read_key

BMC_CHECK_SECONDS = 5
RECOVERY_KEY = "site-recovery.key"


class MachineStack(Stack):
    """A `Stack` without sandbox nodes. `medium`: the deploy medium that the site's agent serves, with the roots of this stack."""

    def __init__(self, options: StackOptions, medium: Path, report: Callable[[Part], None] = lambda _: None) -> None:
        super().__init__(replace(options, agents=0), report)
        self._common_medium = medium

    def remember(self, name: str, pid: int) -> None:
        """A process of the caller: the next start on the same directory ends it if this one is killed."""
        self._records.add(record_of(name, pid, signal.SIGKILL))

    def _control_plane(self, endpoints: Endpoints, authority: Authority) -> list[ProcessPlan]:
        """Machines call this host by another address, and over TLS alone: by a public listener beside the one of `berth`."""
        name_listeners(authority, (HOST,))
        port = self._ports.of("deploy-api")
        reached = {
            "BERTH_PUBLIC_API_URL": f"https://{HOST}:{port}",
            "BERTH_PUBLIC_CA_FILE": str(authority.ca_certificate),
            "BERTH_NODE_API_URL": f"https://{HOST}:{endpoints.node_port}",
        }
        plans = [
            replace(plan, environment={**plan.environment, **reached}) if plan.name == "api" else plan
            for plan in super()._control_plane(endpoints, authority)
        ]
        metrics_port = self._ports.of("deploy-api-metrics")
        return [*plans, deploy_listener_plan(endpoints, authority, port, metrics_port, reached)]

    def _start_fleet(self) -> None:
        with self.admin() as admin:
            admin.put_region(REGION, display_name=fleet.REGIONS[REGION])
            self._start_children([self._site_agent(admin)])

    def _site_agent(self, admin: Client) -> ProcessPlan:
        recovery = self.state.secrets / RECOVERY_KEY
        secret_files.write_secret(recovery, new_key_pem().decode())
        site = admin.create_site(name=SITE, recovery_key=read_key(recovery).public_key().public_bytes_raw().hex())
        invited = admin.invite_site_agent(site.id, name=AGENT)
        token_file = self.state.secrets / "site-enrolment.token"
        secret_files.write_secret(token_file, invited.token + "\n")
        directory, deploy = self.state.agent(AGENT), self.state.path / "deploy"
        for folder in (directory, deploy):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        medium = with_root_keys(self._common_medium, deploy, self.authority.root_keys)
        port, metrics_port = self._ports.of("site-media"), self._ports.of("site-agent-metrics")
        return site_agent_plan(
            self.endpoints, self.authority, directory, token_file, medium, media_port=port, metrics_port=metrics_port
        )


def deploy_listener_plan(
    endpoints: Endpoints, authority: Authority, port: int, metrics_port: int, reached: Mapping[str, str]
) -> ProcessPlan:
    """The public listener over TLS at which deploy systems enrol. `reached`: where machines reach the listeners."""
    plan = orchestrator_plan("public", replace(endpoints, public_port=port, console_port=0), authority, metrics_port)
    environment = {
        **plan.environment, **reached,
        "BERTH_PUBLIC_TLS_CERTIFICATE_FILE": str(authority.listener_certificate),
        "BERTH_PUBLIC_TLS_KEY_FILE": str(authority.listener_key),
    }  # fmt: skip
    where = f"https://127.0.0.1:{port}"
    return replace(plan, name="deploy-api", environment=environment, where=where, ports={"deploy-api": port})


def site_agent_plan(
    endpoints: Endpoints, authority: Authority, state_directory: Path, token_file: Path, medium: Path,
    *, media_port: int, metrics_port: int,
) -> ProcessPlan:  # fmt: skip
    """The agent of a site, which serves the medium to the BMCs of this host."""
    environment = {
        "BERTH_API_URL": endpoints.api_url,
        "BERTH_NODE_API_URL": endpoints.node_api_url,
        "BERTH_AGENT_STATE_DIR": str(state_directory),
        "BERTH_ROOT_KEYS_FILE": str(authority.root_keys),
        "BERTH_ENROLMENT_TOKEN_FILE": str(token_file),
        "BERTH_ENROLMENT_HTTP_ALLOWED": "true",
        "BERTH_DEPLOY_MEDIUM_FILE": str(medium),
        "BERTH_SITE_MEDIA_URL": f"http://127.0.0.1:{media_port}",
        "BERTH_SITE_MEDIA_HOST": "127.0.0.1",
        "BERTH_SITE_MEDIA_PORT": str(media_port),
        "BERTH_SITE_BMC_CHECK_SECONDS": str(BMC_CHECK_SECONDS),
        "BERTH_METRICS_PORT": str(metrics_port),
    }
    ports = {"site-media": media_port}
    return ProcessPlan(f"agent {AGENT}", "node_agent", metrics_port, environment, ("--site",), f"site {SITE}", ports)
