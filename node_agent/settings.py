"""Every setting of the node agent, read once at start from `BERTH_*` environment variables."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from node_agent.protocol import WAIT_SECONDS_MAX
from node_agent.wire.maintenance import MAINTENANCE_PLUGIN_FEATURE
from node_agent.wire.networks import NAMES_FEATURE, TENANT_NETWORK_FEATURE, VLAN_FEATURE, VXLAN_FEATURE, Underlay
from node_agent.wire.processors import parse_processors


def _processors(text: str) -> str:
    parse_processors(text)
    return text


DOMAIN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$"
"""Labels as those of guests' names, with dots between them."""
DISK_POOL = r"^[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,62}/[A-Za-z0-9_+][A-Za-z0-9_.+-]{0,62}$"
"""Names of lvm(8); a volume group is a directory of /dev, and with a volume's name a name of device mapper of 127 characters."""
OVERCOMMIT_MIN, OVERCOMMIT_MAX = 0.1, 100.0


class Settings(BaseSettings):
    """Addresses, files and bounds. Durations are seconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    api_url: str = Field(description="https:// address of the public listener; used only to enrol")
    api_ca_file: Path | None = Field(
        None, description="PEM certificates among which the CA is that enrolment tokens pin; default: the public ones"
    )
    enrolment_http_allowed: bool = Field(
        False, description="whether the agent may enrol without TLS at a public listener on this machine"
    )
    node_api_url: str | None = Field(
        None, description="https:// address of the node listener; default: as enrolment said"
    )
    enrolment_token: SecretStr | None = Field(None, description="one-time enrolment token")
    enrolment_token_file: Path | None = Field(None, description="file that holds the one-time enrolment token")
    hardware_id: str | None = Field(None, min_length=1, max_length=200, description="default: made once, kept on disk")

    tpm_tcti: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9-]*(:[\x21-\x7e]*)?$",
        description="address of this node's TPM for tpm2-tools, for example device:/dev/tpmrm0; default: it proves no TPM",
    )

    root_keys_file: Path = Field(
        description="PEM Ed25519 public keys of the offline root, one or more; key sets that none of them signed are refused"
    )
    agent_state_dir: Path = Field(
        description="directory of this agent's identity, journal and guests; not shared with another agent"
    )
    agent_driver: Literal["sandbox", "noop", "libvirt"] = Field("sandbox", description="what carries tasks out")
    sandbox_allowed: bool = Field(
        False,
        description="whether the drivers `sandbox` and `noop`, which carry nothing out on a real GPU, may be used",
    )
    agent_advertised_host: str = Field("127.0.0.1", description="address on which guests listen and tenants log in")
    agent_ssh_port_first: int = Field(20_000, ge=1024, le=65_535, description="first port that a guest may get")
    agent_ssh_port_last: int = Field(31_999, ge=1024, le=65_535, description="last port that a guest may get")

    agent_wait_seconds: float = Field(30.0, gt=0, le=WAIT_SECONDS_MAX, description="length of one wait for tasks")
    agent_heartbeat_seconds: float = Field(10.0, gt=0, description="time between heartbeats")
    agent_startup_seconds: float = Field(60.0, gt=0, description="how long to wait for the server at start")
    agent_stop_seconds: float = Field(
        60.0, ge=0, description="how long guests get to shut down when the host goes down, and then are killed"
    )
    agent_ends_guests: bool = Field(
        False,
        description="whether an orderly stop of the agent ends its guests, as in a local stack; false: they go on",
    )
    agent_readiness_seconds: float = Field(30.0, gt=0, description="how long a guest may take to answer over SSH")
    agent_guest_check_seconds: float = Field(5.0, gt=0, description="time between two checks that guests run")
    agent_unreachable_seconds: float = Field(
        60.0, ge=0, description="a running guest whose SSH server does not answer for so long is reported; 0: none is"
    )
    agent_restart_attempts_max: int = Field(
        5, ge=0, le=100, description="attempts in a row to start a guest again that ended; 0: none"
    )
    agent_restart_first_seconds: float = Field(1.0, gt=0, description="pause after the first attempt; it doubles")
    agent_restart_seconds_max: float = Field(60.0, gt=0, description="longest pause between attempts")
    agent_restart_steady_seconds: float = Field(
        600.0, gt=0, description="a guest that has run so long since its last restart has all attempts again"
    )
    agent_tasks_max: int = Field(32, ge=1, le=256, description="provisions carried out at once; releases never wait")
    site_tasks_max: int = Field(
        32,
        ge=1,
        le=64,
        description="`--site`: tasks about BMCs carried out at once, of one machine one after another; as many again may"
        " wait for the SSH servers of machines",
    )
    site_bmc_check_seconds: float = Field(
        15.0,
        gt=0,
        le=600,
        description="`--site`: time between two rounds that ask each BMC of the site whether it answers",
    )
    site_switches_file: Path | None = Field(
        None,
        description="`--site`: JSON file with the switches of the site, by name: driver and its options; default: none",
    )
    site_media_url: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]+$",
        description="`--site`: address at which BMCs reach this agent's media; default: none",
    )
    site_media_host: str = Field("0.0.0.0", description="`--site`: address to listen on for BMCs that read media")
    site_media_port: int = Field(
        8480, ge=1, le=65_535, description="`--site`: port to listen on for BMCs that read media"
    )
    site_media_certificate_file: Path | None = Field(
        None,
        description="`--site`: TLS certificate of the media (PEM), with `BERTH_SITE_MEDIA_KEY_FILE`; default: plain HTTP",
    )
    site_media_key_file: Path | None = Field(None, description="`--site`: private key of that certificate (PEM)")
    deploy_medium_file: Path | None = Field(
        None,
        description="`--site`: the deploy medium that `make deploy-medium` built; each machine gets its own configuration",
    )
    agent_reports_kept_seconds: float = Field(
        172_800.0,
        ge=86_400,
        description="how long the journal keeps reports of finished tasks, to answer a control plane that was restored to before"
        " them; at most 4,096 and 16 MiB",
    )
    agent_probe_plugins_dir: Path | None = Field(
        None, description="directory of executables that health probes run; default: none"
    )
    agent_probe_plugin_seconds: float = Field(
        30.0, gt=0, le=60, description="how long one executable of a health probe may run"
    )
    agent_burn_in_memory_bytes_max: int = Field(
        8 * 2**30, ge=16 * 2**20, description="most memory that a burn-in tests, of half of what is available"
    )
    agent_burn_in_disk_bytes_max: int = Field(
        2**30, ge=2**20, description="largest file that a burn-in writes, of a quarter of what is free"
    )
    agent_burn_in_cpu_seconds: float = Field(
        10.0, gt=0, le=3_600, description="how long a burn-in computes on each core"
    )
    agent_burn_in_dcgm_level: int = Field(
        2, ge=0, le=4, description="level of `dcgmi diag` in a burn-in, where DCGM is installed; 0: none"
    )
    agent_burn_in_plugins_dir: Path | None = Field(
        None, description="directory of executables that burn-ins run; default: none"
    )
    agent_burn_in_plugin_seconds: float = Field(
        600.0, gt=0, le=3_600, description="how long one executable of a burn-in may run"
    )
    agent_maintenance_plugins_dir: Path | None = Field(
        None, description="directory of executables that maintenance windows run by name; default: none"
    )
    agent_lease_seconds: float = Field(60.0, gt=0, description="how long a slot's lease lasts unless it is renewed")
    agent_image_bytes_max: int = Field(64 * 2**30, ge=1, description="largest image")
    agent_image_cache_max: int = Field(16, ge=1, description="images kept in the cache")
    agent_image_cache_bytes_max: int = Field(
        256 * 2**30, ge=1, description="bytes of all images in the cache; the newest and those in use stay in any case"
    )

    libvirt_uri: str = Field("qemu:///system", description="driver libvirt: the libvirtd of this node")
    guest_dir: Path | None = Field(
        None, description="driver libvirt: directory of disks and images, which QEMU's users must be able to traverse"
    )
    guest_memory_bytes: int = Field(
        4 * 2**30, ge=64 * 2**20, multiple_of=2**20, description="driver libvirt: memory of a guest for each slot"
    )
    guest_processors: int = Field(2, ge=1, le=256, description="driver libvirt: processors of a guest for each slot")
    guest_disk_bytes: int = Field(
        64 * 2**30, ge=2**30, multiple_of=512, description="driver libvirt: disk of a guest for each slot"
    )
    guest_user_id_first: int = Field(
        64_500, ge=1000, le=2**31 - 1024,
        description="driver libvirt: QEMU of a guest runs as this user plus the guest's first slot",
    )  # fmt: skip

    libvirt_slots: int = Field(
        0,
        ge=0,
        le=64,
        description="driver libvirt: slots of a host without GPUs, to pin guests by; 0: none is pinned there",
    )
    libvirt_reserved_processors: Annotated[str, AfterValidator(_processors)] | None = Field(
        None,
        description="driver libvirt: processors of the host (`0-1,64-65`) that guests do not use; default: the first core "
        "of each NUMA node where guests are pinned",
    )
    libvirt_huge_page_kib: Literal[0, 2048, 1_048_576] = Field(
        0, description="driver libvirt: size of the huge pages that guests' memory is made of; 0: ordinary pages"
    )

    libvirt_disk_pool: str | None = Field(
        None, max_length=128, pattern=DISK_POOL,
        description="driver libvirt: `<volume group>/<thin pool>` of LVM in which each guest's disk is a volume; default: disks"
        " are files below `BERTH_GUEST_DIR`",
    )  # fmt: skip
    libvirt_disk_pool_overcommit: float = Field(
        1.0, ge=OVERCOMMIT_MIN, le=OVERCOMMIT_MAX,
        description="driver libvirt: how many times the pool's size all its volumes may have together; above 1 guests wait when"
        " it is full",
    )  # fmt: skip

    libvirt_gpus: Literal["none", "vfio"] = Field(
        "none",
        description="driver libvirt: `vfio`: a guest gets the GPUs of its slots, bound to vfio-pci; `none`: it gets none",
    )
    libvirt_gpus_after: Literal["host", "vfio"] = Field(
        "host",
        description="driver libvirt: where GPUs are between guests: with the `host`'s driver, which health probes need, or "
        "left on `vfio`-pci",
    )

    libvirt_network: Literal["user", "bridge"] = Field(
        "user",
        description="driver libvirt: `user`: each guest alone; `bridge`: guests of a tenant reach each other",
    )
    libvirt_closed_networks: list[IPv4Network] = Field(
        [IPv4Network(one) for one in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")],
        description="networks (JSON list of CIDR) that guests of tenant networks never reach, besides link-local addresses",
    )
    libvirt_egress: bool = Field(
        False, description="whether guests of tenant networks reach other addresses, with the node's address as source"
    )

    libvirt_network_names: Literal["dnsmasq", "none"] = Field(
        "dnsmasq",
        description="network `bridge`: `dnsmasq`: guests get their addresses by DHCP and names by DNS; `none`: they do not",
    )
    libvirt_network_domain: str = Field(
        "berth.internal", max_length=150, pattern=DOMAIN,
        description="domain of the names of guests in tenant networks; the same on all nodes",
    )  # fmt: skip
    libvirt_network_resolvers: list[IPv4Address] = Field(
        [],
        max_length=3,
        description="addresses (JSON list) of resolvers that are asked for all other names of guests' queries; default: none is",
    )

    libvirt_network_uplink: Literal["none", "vxlan", "vlan"] = Field(
        "none",
        description="`vxlan`, `vlan`: tenant networks span the nodes of a region with the same; `none`: they end at the node",
    )
    libvirt_network_uplink_interface: str | None = Field(
        None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$",
        description="uplink `vlan`: interface of this node, without addresses; its switch port carries the VLANs of networks",
    )  # fmt: skip
    libvirt_network_underlay: Underlay | None = Field(
        None, description="uplink `vxlan`: address of this node at which other nodes reach it"
    )
    libvirt_network_peers: list[IPv4Network] = Field(
        [],
        description="uplink `vxlan`: networks (JSON list of CIDR) in which other nodes have their underlay addresses",
    )
    libvirt_network_mtu: int | None = Field(
        None, ge=1280, le=9000,
        description="largest IP packet of guests, the same on all nodes; default: 1450 with `vxlan`, which needs 50 bytes more of"
        " the underlay, and 1500 with `vlan`",
    )  # fmt: skip

    metrics_host: str = Field("127.0.0.1", description="address of the metrics and health listener")
    metrics_port: int | None = Field(None, ge=1, le=65_535, description="its port; default: no such listener")

    def features(self) -> tuple[str, ...]:
        """What the agent can do by its settings: the control plane orders it of no other agent."""
        plugins = () if self.agent_maintenance_plugins_dir is None else (MAINTENANCE_PLUGIN_FEATURE,)
        if (self.agent_driver, self.libvirt_network) != ("libvirt", "bridge"):
            return plugins
        spans = {"vxlan": (VXLAN_FEATURE,), "vlan": (VLAN_FEATURE,), "none": ()}[self.libvirt_network_uplink]
        names = (NAMES_FEATURE,) if self.libvirt_network_names == "dnsmasq" else ()
        return (*plugins, TENANT_NETWORK_FEATURE, *spans, *names)

    def underlay(self) -> IPv4Address | None:
        """Where other nodes reach its tenant networks, or its address with VLANs; None if they end at the node."""
        features = self.features()
        if VLAN_FEATURE in features:
            return IPv4Address(self.agent_advertised_host)
        return self.libvirt_network_underlay if VXLAN_FEATURE in features else None

    def token(self) -> str | None:
        """The enrolment token, from its variable or its file; None when neither is there. Raises OSError."""
        if self.enrolment_token is not None:
            return self.enrolment_token.get_secret_value().strip() or None
        if self.enrolment_token_file is not None and self.enrolment_token_file.exists():
            return self.enrolment_token_file.read_text().strip() or None
        return None
