"""A stage with a rack: a site with two agents that stand by for each other, and machines whose BMCs are a process apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from berth.client import Client, ImageStatement, SealedBmcPassword, Site
from berth.local import secret_files
from berth.local.authority import Authority
from berth.local.machines.certificates import self_signed
from berth.local.machines.stack import deploy_listener_plan, site_agent_plan
from berth.local.processes import Endpoints, ProcessPlan
from berth.process.sealed_passwords import Purpose, new_key_pem, read_key, seal_to_all
from tests.campaign import stage_settings as settings
from tests.campaign.machines.place import CERTIFICATES, FIRST_PASSWORD, MACHINE_PREFIX, USER, Place
from tests.campaign.schedule import Targets
from tests.campaign.stage import LAUNCHER, Stage
from tests.media.media_files import common_medium
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API

SITE, REGION, GPU_MODEL, SKU, IMAGE = "rack-1", "rack-1", "RACK-1", "rack.metal", "rack-image"
SLOTS = 8
BMCS, SYSTEMS = "bmcs", "systems"
SITE_AGENTS = ("site-agent", "site-agent-2")
READY_SECONDS_MAX = 60.0
DISK_BYTES_MIN = 1 << 30
HURRIED = ("orchestrator", "worker", "node_agent")


class RackedStage(Stage):
    """The stage with so many machines. Every process of ours is of the test build, for the short deadlines."""

    def __init__(
        self, directory: Path, agents: int = 6, plant: str | None = None, *, machines: int = 3, truncates: bool = False,
        ha: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(directory, agents, plant, truncates=truncates, ha=ha)
        self.options = replace(self.options, launcher=LAUNCHER)
        self._machines = machines
        self.places: list[Place] = []

    def _control_plane(self, endpoints: Endpoints, authority: Authority) -> list[ProcessPlan]:
        """The public listeners say where machines reach the listener that is added for them."""
        port, metrics_port = self._ports.of("deploy-api"), self._ports.of("deploy-api-metrics")
        self._ssh_port = self._ports.of("machines-ssh")
        reached = {
            "BERTH_PUBLIC_API_URL": f"https://localhost:{port}",
            "BERTH_PUBLIC_CA_FILE": str(authority.ca_certificate),
            "BERTH_NODE_API_URL": endpoints.node_api_url,
        }
        plans = super()._control_plane(endpoints, authority)
        public = [plan.name for plan in plans if plan.name.startswith("api")]
        plans = [
            replace(plan, environment={**plan.environment, **reached}) if plan.name in public else plan
            for plan in plans
        ]
        listener = deploy_listener_plan(endpoints, authority, port, metrics_port, reached)
        more = {**settings.DEADLINES, **NODE_API, **settings.KEPT, **settings.RATES, **settings.ISSUER}
        return [*plans, self._with(listener, more)]

    def _with(self, plan: ProcessPlan, environment: Mapping[str, str]) -> ProcessPlan:
        """Sites have short deadlines in every process."""
        hurried = {"BERTH_HURRIED_SITES": str(self._ssh_port)} if plan.module in HURRIED else {}
        return super()._with(plan, {**environment, **settings.SITES, **hurried})

    def _as_asked(self, plan: ProcessPlan) -> ProcessPlan:
        """BMCs and machines are no processes of ours."""
        return plan if plan.module.startswith("tests.") else super()._as_asked(plan)

    def _start_fleet(self) -> None:
        super()._start_fleet()
        self._rack()
        with self.admin() as admin:
            self._start_children([self._played(BMCS), self._played(SYSTEMS)])
            admin.put_region(REGION, display_name="The rack")
            statement = ImageStatement(format="raw", firmware="uefi", disk_bytes_min=DISK_BYTES_MIN)
            admin.put_image(
                IMAGE, url="https://images.example/rack.raw", sha256="0" * 64, shapes=["baremetal"], statement=statement
            )
            admin.put_sku(
                SKU, shape="baremetal", gpu_model=GPU_MODEL, allowed_counts=(SLOTS,), default_image=IMAGE,
                price_micro_per_gpu_second=700,
            )  # fmt: skip
            self._start_children(self._site_agents(admin))
            wait_for(lambda: _serves(admin.get_site(SITE)), "the agents of the site serve", READY_SECONDS_MAX)
            for place in self.places:
                self._enrol(admin, place)
            for place in self.places:
                self._put_into_service(admin, place)

    def _rack(self) -> None:
        """Directories, ports and certificates."""
        directory = self.rack
        ports = [self._ports.of(f"bmc-{n}") for n in range(1, self._machines + 1)]
        directory.mkdir(mode=0o700)
        (directory / "rack.json").write_text(json.dumps({"ports": ports}))
        self.places = [Place(directory / f"{MACHINE_PREFIX}{n}", n, port) for n, port in enumerate(ports, 1)]
        for place in self.places:
            place.directory.mkdir(mode=0o700)
            for number in CERTIFICATES:
                certificate, key, digest = self_signed(f"{place.name}-{number}")
                place.certificate(number).write_bytes(certificate + key)
                place.certificate(number).with_suffix(".sha256").write_text(digest)

    @property
    def rack(self) -> Path:
        """Where the machines have their files."""
        return self.state.path / "rack"

    @property
    def recovery_key(self) -> Path:
        """Opens every password of the site."""
        return self.state.secrets / "site-recovery.key"

    def _played(self, name: str) -> ProcessPlan:
        port = self._ports.of(f"{name}-metrics")
        environment = {
            "BERTH_METRICS_PORT": str(port), "BERTH_MACHINES_SSH_PORT": str(self._ssh_port),
            "BERTH_ROOT_KEYS_FILE": str(self.authority.root_keys),
        }  # fmt: skip
        return ProcessPlan(name, f"tests.campaign.machines.{name}", port, environment, (str(self.rack),))

    def _site_agents(self, admin: Client) -> list[ProcessPlan]:
        secret_files.write_secret(self.recovery_key, new_key_pem().decode())
        key = read_key(self.recovery_key).public_key().public_bytes_raw().hex()
        site = admin.create_site(name=SITE, recovery_key=key)
        medium = self.rack / "deploy.iso"
        common_medium(medium)
        return [self._site_agent(admin, site, name, medium) for name in SITE_AGENTS]

    def _site_agent(self, admin: Client, site: Site, name: str, medium: Path) -> ProcessPlan:
        token_file, directory = self.state.secrets / f"{name}.token", self.state.agent(name)
        secret_files.write_secret(token_file, admin.invite_site_agent(site.id, name=name).token + "\n")
        directory.mkdir(mode=0o700, parents=True)
        media_port, metrics_port = self._ports.of(f"{name}-media"), self._ports.of(f"{name}-metrics")
        plan = site_agent_plan(
            self.endpoints,
            self.authority,
            directory,
            token_file,
            medium,
            media_port=media_port,
            metrics_port=metrics_port,
        )
        return self._with(replace(plan, name=name, ports={f"{name}-media": media_port}), settings.SITE_AGENT)

    def _enrol(self, admin: Client, place: Place) -> None:
        """Register the node, and its BMC with the first password; its inspection begins."""
        node = admin.create_node(
            name=place.name, region=REGION, gpu_model=GPU_MODEL, shape="baremetal", slot_count=SLOTS,
            address=place.address,
        )  # fmt: skip
        site = admin.get_site(SITE)
        sealed = seal_to_all(FIRST_PASSWORD, Purpose(site.id, node.id, 1), site.recipients())
        admin.put_bmc(
            node.id, site_id=site.id, url=place.url, certificate_sha256=place.pin(1), username=USER,
            password=SealedBmcPassword(1, sealed),
        )  # fmt: skip
        admin.run_deploy_system(node.id, network=place.network, smbios_uuid=place.smbios)

    def _put_into_service(self, admin: Client, place: Place) -> None:
        node = admin.get_node(place.name)
        wait_for(lambda: admin.get_deploy_run(node.id).outcome is not None, "the inspection ends", READY_SECONDS_MAX)
        run = admin.get_deploy_run(node.id)
        assert (run.outcome, run.failure) == ("completed", None), run
        admin.uncordon_node(node.id)
        wait_for(lambda: admin.get_node(node.id).online, f"{place.name} is online", READY_SECONDS_MAX)

    def place(self, name: str) -> Place:
        """A machine by the name of its node."""
        return next(place for place in self.places if place.name == name)

    def calm(self) -> None:
        """No BMC fails any more."""
        super().calm()
        for place in self.places:
            place.remove("faults")

    @property
    def targets(self) -> Targets:
        """BMCs and machines have faults of their kinds alone; those of a whole process would cut a machine's power."""
        found = super().targets
        ours = [name for name in found.processes if name not in (BMCS, SYSTEMS)]
        rolls = {sort: names for sort, names in found.rolls.items() if sort not in (BMCS, SYSTEMS)}
        machines = [place.name for place in self.places]
        return replace(found, processes=ours, rolls=rolls, bmcs=[BMCS], machines=machines)


def _serves(site: Site) -> bool:
    return site.lease is not None and len(site.recipients()) > len(SITE_AGENTS)
