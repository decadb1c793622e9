"""What CloudNativePG and the charts of NATS and Temporal are given: what Berth needs of these servers, as in deploy/compose.yaml.

Neither the operator nor the charts are here, so no schema judges these files in a test.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from migrations.roles import Role
from tests.deploy.deployment import DEPLOY, ROOT, services
from tests.deploy.kubernetes.manifests import OVERLAYS, of_kind, values

CLUSTER_MEMBERS = {
    "instances", "imageName", "enableSuperuserAccess", "storage", "resources", "certificates", "replicationSlots",
    "postgresql", "bootstrap", "managed", "affinity",
}  # fmt: skip


def cluster(folder: str) -> dict[str, Any]:
    """The Cluster of an overlay."""
    found: dict[str, Any] = of_kind(folder, "Cluster")["berth-postgres"]["spec"]
    return found


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_cluster_is_one_of_the_operators_reference(folder: str) -> None:
    assert cluster(folder).keys() <= CLUSTER_MEMBERS
    assert cluster(folder)["postgresql"].keys() <= {"parameters", "pg_hba", "synchronous"}
    assert cluster(folder)["enableSuperuserAccess"] is False


def test_in_production_a_commit_is_on_two_servers_and_no_other_is_promoted() -> None:
    production = cluster("production")
    assert production["instances"] == 3
    assert production["postgresql"]["synchronous"] == {
        "method": "any", "number": 1, "dataDurability": "required", "failoverQuorum": True,
    }  # fmt: skip
    assert production["affinity"]["podAntiAffinityType"] == "required"
    assert cluster("small")["instances"] == 1
    assert "synchronous" not in cluster("small")["postgresql"], "one server would wait for a standby for ever"


@pytest.mark.parametrize("folder", OVERLAYS)
def test_postgresql_has_the_settings_of_compose(folder: str) -> None:
    text = "\n".join(services()["postgres"]["command"])
    options = dict(re.findall(r"--(\w+)=(\S+)", text))
    for own in ("ssl", "ssl_cert_file", "ssl_key_file", "hba_file"):
        options.pop(own)
    assert options.items() <= cluster(folder)["postgresql"]["parameters"].items()


def test_the_page_on_standbys_asks_for_what_the_manifests_have() -> None:
    page = (ROOT / "docs" / "how-to" / "servers" / "run-postgresql-with-standbys.md").read_text()
    (block,) = [found for found in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Cluster" in found]
    asked = yaml.safe_load(block)["spec"]
    found = cluster("production")
    assert asked["postgresql"]["synchronous"] == found["postgresql"]["synchronous"]
    assert asked["replicationSlots"] == found["replicationSlots"]
    parameters = dict(asked["postgresql"]["parameters"])
    parameters.pop("max_slot_wal_keep_size")  # by the size of the disk
    assert parameters.items() <= found["postgresql"]["parameters"].items()


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_roles_are_those_of_the_script(folder: str) -> None:
    script = (DEPLOY / "database-roles.sh").read_text()
    (listed,) = re.findall(r'^roles="([^"]+)"$', script, re.MULTILINE)
    of_processes = set(listed.split())
    assert {role.value for role in Role} <= of_processes | {"berth_backup"}
    managed = {one["name"]: one for one in cluster(folder)["managed"]["roles"]}
    assert managed.keys() == of_processes | {"temporal", "berth_backup"}
    assert all(one["login"] and one["ensure"] == "present" for one in managed.values())
    assert not any(one.get("superuser") for one in managed.values())
    assert [name for name, one in managed.items() if one.get("createdb")] == ["temporal"]
    assert [name for name, one in managed.items() if one.get("replication")] == ["berth_backup"]
    first = cluster(folder)["bootstrap"]["initdb"]
    assert (first["database"], first["owner"]) == ("berth", "berth")
    assert first["postInitApplicationSQL"][0] == "revoke connect on database berth from public"
    for role in of_processes:
        assert f"create role {role} login" in first["postInitApplicationSQL"]
        assert f"grant connect on database berth to {role}" in first["postInitApplicationSQL"]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_connections_to_postgresql_use_tls_and_the_name_in_the_addresses(folder: str) -> None:
    assert cluster(folder)["postgresql"]["pg_hba"][-1] == "hostnossl all all all reject"
    (service,) = cluster(folder)["managed"]["services"]["additional"]
    assert (service["selectorType"], service["serviceTemplate"]["metadata"]["name"]) == ("rw", "postgres")


@pytest.mark.parametrize("folder", OVERLAYS)
def test_temporal_has_its_databases(folder: str) -> None:
    found = {one["spec"]["name"]: one["spec"] for one in of_kind(folder, "Database").values()}
    stores = values("servers/temporal-values.yaml")["server"]["config"]["persistence"]["datastores"]
    assert (
        {one["sql"]["databaseName"] for one in stores.values()} == found.keys() == {"temporal", "temporal_visibility"}
    )
    assert {one["owner"] for one in found.values()} == {one["sql"]["user"] for one in stores.values()} == {"temporal"}
    for one in stores.values():
        assert one["sql"]["connectAddr"] == "postgres:5432"
        assert one["sql"]["tls"]["enableHostVerification"] is True


def test_nats_acknowledges_what_is_on_its_disk_and_production_keeps_three_copies() -> None:
    for more in ((), ("overlays/production/nats-values.yaml",)):
        config = values("servers/nats-values.yaml", *more)["config"]
        assert config["jetstream"]["merge"]["sync_interval"] == "always"
        assert config["jetstream"]["fileStore"]["enabled"] is True
        assert config["jetstream"]["memoryStore"]["enabled"] is False
        assert config["nats"]["tls"]["enabled"] is True
        assert config["merge"]["max_payload"] == "<< 1MB >>"
    assert config["cluster"] == {"enabled": True, "replicas": 3, "merge": {"no_advertise": True}}
    whole = values("servers/nats-values.yaml", "overlays/production/nats-values.yaml")
    assert (
        whole["podTemplate"]["topologySpreadConstraints"]["kubernetes.io/hostname"]["whenUnsatisfiable"]
        == "DoNotSchedule"
    )
    assert whole["podTemplate"]["merge"]["spec"]["securityContext"]["runAsNonRoot"] is True
    assert "sync_interval: always" in (DEPLOY / "nats.conf").read_text()


def test_nats_reads_its_users_where_they_are_mounted() -> None:
    nats = values("servers/nats-values.yaml")
    (mount,) = [one["value"] for one in nats["container"]["patch"]]
    (volume,) = [one["value"] for one in nats["podTemplate"]["patch"]]
    assert mount["name"] == volume["name"]
    assert volume["secret"]["secretName"] == "nats-users"
    included = nats["config"]["merge"]["zz$include"]
    assert f"/etc/{included.removeprefix('../')}" == f"{mount['mountPath']}/nats-roles.conf"


def test_temporal_requires_certificates_and_production_has_two_frontends() -> None:
    server = values("servers/temporal-values.yaml", "overlays/production/temporal-values.yaml")["server"]
    assert server["frontend"]["replicaCount"] == 2
    assert server["tls"]["frontend"]["requireClientAuth"] is True
    assert {one["serverName"] for one in server["tls"].values()} == {"temporal"}
    assert str(server["config"]["numHistoryShards"]) == services()["temporal"]["environment"]["NUM_HISTORY_SHARDS"]
    (namespace,) = server["config"]["namespaces"]["namespace"]
    assert namespace == {"name": "default", "retention": "168h"}


def test_temporal_has_the_dynamic_configuration_of_compose() -> None:
    wanted = yaml.safe_load((DEPLOY / "temporal" / "dynamic-config.yaml").read_text())
    assert values("servers/temporal-values.yaml")["server"]["dynamicConfig"] == wanted
