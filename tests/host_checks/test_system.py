"""The checks of settings and devices, each outcome by facts and by a recorded tree of files."""

from __future__ import annotations

import asyncio
import os
import pwd
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node_agent.agent import Agent
from node_agent.checks.bridges import SETTINGS, check_bridge_filter, judge_bridge_filter
from node_agent.checks.console_logs import check_console_logs
from node_agent.checks.finding import Code, Finding, Severity, severity_of
from node_agent.checks.host import check_start, check_system
from node_agent.checks.iommu import check_iommu
from node_agent.checks.kvm_device import Access, User, judge_access, judge_user, libvirt_user, try_access
from node_agent.checks.libvirt_settings import read_libvirt_settings
from node_agent.checks.memory import check_huge_pages
from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.noop import NoopDriver
from node_agent.problems import AgentProblem, CannotStart
from node_agent.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fleet" / "host-checks.md"
GPU = "sys/bus/pci/devices/0000:17:00.0"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can try a device as another user")


def tree(root: Path, files: Mapping[str, str]) -> Tree:
    """A recorded tree of files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root, Gaps())


def bridges(*values: str) -> dict[str, str]:
    return {f"proc/sys/net/bridge/{name}": f"{value}\n" for name, value in zip(SETTINGS, values, strict=True)}


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({}, None, "br_netfilter is not loaded"),
        (bridges("0", "0", "0"), None, "does not see"),
        (bridges("1", "0", "1"), Code.BRIDGE_FILTER_ON, "bridge-nf-call-iptables, bridge-nf-call-arptables"),
        (bridges("0", "many", "0"), Code.BRIDGE_FILTER_UNREADABLE, "bridge-nf-call-ip6tables cannot be read"),
    ],
    ids=["no-module", "off", "on", "unreadable"],
)
def test_the_filter_of_bridges(tmp_path: Path, files: dict[str, str], code: Code | None, words: str) -> None:
    finding = check_bridge_filter(tree(tmp_path, files))
    assert finding.code == code
    assert words in finding.found


def test_the_remedy_switches_off_what_is_on_and_nothing_else() -> None:
    finding = judge_bridge_filter({"bridge-nf-call-iptables": 1, "bridge-nf-call-ip6tables": 0})
    assert finding.remedy.startswith("sysctl -w net.bridge.bridge-nf-call-iptables=0,")


LISTENS = {"run/libvirt/virtlogd-sock": ""}


@pytest.mark.parametrize(
    ("qemu", "virtlogd", "code", "words"),
    [
        (None, None, None, f"at most {4 * 2**21} bytes"),
        ('stdio_handler = "logd"\n', "max_size = 1048576\nmax_backups = 2\n", None, f"at most {3 * 2**20} bytes"),
        ('#stdio_handler = "file"\n', "#max_size = 0\n", None, f"at most {4 * 2**21} bytes"),
        ('stdio_handler = "file"\n', None, Code.CONSOLE_LOG_UNBOUNDED, "without virtlogd"),
        (" stdio_handler='file' # kept\n", None, Code.CONSOLE_LOG_UNBOUNDED, "without virtlogd"),
        (None, "max_size = 0\n", Code.CONSOLE_LOG_UNBOUNDED, "max_size = 0"),
        (None, "max_size = 268435456\nmax_backups = 0\n", None, "at most 268435456 bytes"),
        (None, "max_size = 268435457\nmax_backups = 0\n", Code.CONSOLE_LOG_BOUND_LARGE, "268435457 bytes"),
        (None, "max_backups = 128\n", Code.CONSOLE_LOG_BOUND_LARGE, "more than 268435456"),
    ],
    ids=["defaults", "set", "comments", "file", "file-quoted", "size-zero", "bound", "above", "backups"],
)
def test_the_bounds_of_virtlogd(
    tmp_path: Path, qemu: str | None, virtlogd: str | None, code: Code | None, words: str
) -> None:
    files = {"etc/libvirt/qemu.conf": qemu, "etc/libvirt/virtlogd.conf": virtlogd}
    finding = check_console_logs(tree(tmp_path, {**LISTENS, **{n: t for n, t in files.items() if t is not None}}))
    assert finding.code == code
    assert words in finding.found


def test_a_virtlogd_that_does_not_listen_and_settings_that_cannot_be_read(tmp_path: Path) -> None:
    assert check_console_logs(tree(tmp_path, {})).code is Code.VIRTLOGD_ABSENT
    (tmp_path / "etc/libvirt/virtlogd.conf").mkdir(parents=True)
    finding = check_console_logs(tree(tmp_path, LISTENS))
    assert (finding.code, finding.found) == (
        Code.LIBVIRT_SETTINGS_UNREADABLE, "/etc/libvirt/virtlogd.conf cannot be read",
    )  # fmt: skip


def test_of_a_setting_that_is_there_twice_the_first_holds_and_lists_are_left_out(tmp_path: Path) -> None:
    text = 'user = "first"\nuser = "second"\nnamespaces = [ "mount" ]\nmax_core = 5 # bytes\n'
    read = read_libvirt_settings(tree(tmp_path, {"etc/libvirt/qemu.conf": text}), "etc/libvirt/qemu.conf")
    assert read == {"user": "first", "max_core": "5"}


def gpu(group: str | None) -> dict[str, str]:
    files = {f"{GPU}/vendor": "0x10de\n", f"{GPU}/device": "0x2330\n", f"{GPU}/class": "0x030200\n"}
    return {**files, f"sys/kernel/iommu_groups/{group}/type": "DMA"} if group else files


@pytest.mark.parametrize(
    ("files", "linked", "code", "words"),
    [
        ({}, False, Code.IOMMU_UNNEEDED, "no GPU"),
        (gpu("40"), True, None, "1 groups; each of 1 GPUs"),
        (gpu(None), False, Code.IOMMU_OFF, "1 of 1 GPUs are in no IOMMU group: 0000:17:00.0"),
        (gpu("40"), False, Code.IOMMU_OFF, "1 of 1 GPUs are in no IOMMU group"),
    ],
    ids=["no-gpu", "grouped", "off", "outside"],
)
def test_the_iommu(tmp_path: Path, files: dict[str, str], linked: bool, code: Code | None, words: str) -> None:
    recorded = tree(tmp_path, files)
    if linked:
        (tmp_path / GPU / "iommu_group").symlink_to(tmp_path / "sys/kernel/iommu_groups/40")
    finding = check_iommu(recorded)
    assert finding.code == code
    assert words in finding.found


def pages(kib: int, reserved: str, free: str) -> dict[str, str]:
    directory = f"sys/kernel/mm/hugepages/hugepages-{kib}kB"
    return {f"{directory}/nr_hugepages": reserved, f"{directory}/free_hugepages": free}


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({}, None, "none are reserved"),
        (pages(2048, "0\n", "0\n"), None, "none are reserved"),
        (
            {**pages(1048576, "4\n", "3\n"), **pages(2048, "16\n", "16\n")}, Code.HUGE_PAGES_RESERVED,
            f"{4 * 2**30 + 16 * 2**21} bytes are reserved (16 of 2048 KiB, 16 of them free, 4 of 1048576 KiB, 3 of",
        ),
        (pages(2048, "x", "1"), None, "none are reserved"),
    ],
    ids=["no-pools", "empty", "reserved", "strange"],
)  # fmt: skip
def test_huge_pages(tmp_path: Path, files: dict[str, str], code: Code | None, words: str) -> None:
    finding = check_huge_pages(tree(tmp_path, files))
    assert finding.code == code
    assert words in finding.found


@pytest.mark.parametrize(
    ("access", "boots", "code"),
    [
        (Access(exists=False), False, Code.KVM_ABSENT),
        (Access(True, True, True), True, None),
        (Access(True, None, True), True, None),
        (Access(True, None, None), True, Code.KVM_ACCESS_UNKNOWN),
        (Access(True, True, False), True, Code.KVM_CLOSED_TO_GUESTS),
        (Access(True, False, False), True, Code.KVM_CLOSED_TO_GUESTS),
        (Access(True, False, False), False, Code.KVM_CLOSED_TO_LIBVIRT),
        (Access(True, True, False), False, None),
    ],
    ids=["absent", "open", "no-user", "untried", "guests", "both", "emulated", "emulated-open"],
)
def test_access_to_kvm(access: Access, boots: bool, code: Code | None) -> None:
    assert judge_access(access, lambda: boots).code == code


@pytest.fixture
def device() -> Iterator[Path]:
    """A file that other users can reach: pytest's directories are closed to them."""
    with tempfile.NamedTemporaryFile() as file:
        yield Path(file.name)


@needs_root
def test_the_device_is_tried_as_the_user_with_its_groups(device: Path) -> None:
    os.chown(device, 0, 64_801)
    device.chmod(0o660)
    outside, member = User(64_800, 64_800, (64_800,)), User(64_800, 64_800, (64_800, 64_801))
    assert try_access(device, outside, [member]) == Access(True, libvirt=False, guests=True)
    assert try_access(device, member, [member, outside]) == Access(True, libvirt=True, guests=False)
    device.chmod(0o640)
    assert try_access(device, member, [member]) == Access(True, libvirt=False, guests=False)


def test_the_user_of_qemu() -> None:
    name = pwd.getpwuid(0).pw_name
    user, wanted = libvirt_user({"user": name})
    assert user is not None
    assert (user.id, wanted, judge_user(user, wanted).code) == (0, name, None)
    assert libvirt_user({"user": "+64800", "group": "64801"})[0] == User(64_800, 64_801, (64_801,))
    nothing, wanted = libvirt_user({"user": "no-such-user"})
    finding = judge_user(nothing, wanted)
    assert finding.code is Code.QEMU_USER_ABSENT
    assert "no-such-user" in finding.found


@pytest.mark.parametrize(
    ("code", "label", "passed"),
    [
        (None, "ok    ", True),
        (Code.IOMMU_UNNEEDED, "info  ", True),
        (Code.BRIDGE_FILTER_ON, "warn  ", True),
        (Code.CONSOLE_LOG_UNBOUNDED, "FAIL  ", False),
    ],
)
def test_only_what_refuses_the_host_does_not_pass(code: Code | None, label: str, passed: bool) -> None:
    finding = Finding("name", "found", code, "remedy")
    assert finding.passed is passed
    assert finding.line().startswith(f"{label}name: found")
    assert code is None or finding.line().endswith(f"[{code}]; remedy")


def test_a_tree_without_anything_is_fit(tmp_path: Path) -> None:
    findings = check_system(tmp_path, 64_500, lambda: False)
    assert [finding.name for finding in findings] == [
        "qemu user", "kvm device", "guest users", "virtlogd", "bridge filter", "iommu", "processors", "huge pages", "ovmf",
    ]  # fmt: skip
    assert all(finding.passed for finding in findings)


def settings(state_dir: Path, driver: Literal["libvirt", "noop"]) -> Settings:
    return Settings(
        api_url="https://unused", root_keys_file=state_dir / "root.pem", agent_state_dir=state_dir / "state",
        agent_driver=driver, guest_dir=state_dir / "guests",
    )  # fmt: skip


@pytest.mark.full
def test_an_agent_with_the_driver_libvirt_does_not_start_on_a_host_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "guests").mkdir(mode=0o700)

    root = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "root.pem").write_bytes(root.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    async def run(driver: Literal["libvirt", "noop"]) -> None:
        agent = Agent(settings(tmp_path, driver).model_copy(update={"agent_startup_seconds": 0.1}), _unused_driver)
        try:
            await agent.run()
        finally:
            agent._ownership.close()

    with pytest.raises(CannotStart, match=r"guest_directory_closed.*chmod o\+x"):
        asyncio.run(run("libvirt"))
    shown = capsys.readouterr()
    assert "host_check" in shown.out + shown.err
    with pytest.raises(AgentProblem, match="is not enrolled"):
        asyncio.run(run("noop"))


def _unused_driver(_settings: Settings) -> NoopDriver:
    return NoopDriver("192.0.2.1")


def test_the_page_has_each_code_with_its_severity_and_no_other() -> None:
    rows = [
        line.split("|")[1:4]
        for line in PAGE.read_text().partition("## Codes")[2].splitlines()
        if line.startswith("| `")
    ]
    listed = {code.strip(" `"): severity.strip(" `") for code, _, severity in rows}
    assert listed == {code.value: severity_of(code).value for code in Code}
    assert {severity_of(code) for code in Code} == set(Severity)


def test_each_start_checks_directories_and_system(tmp_path: Path) -> None:
    (tmp_path / "guests").mkdir()
    names = [finding.name for finding in check_start(tmp_path, tmp_path / "guests", 64_500, tmp_path)]
    assert names[:3] == ["state directory", "guest directory", "guest directory"]
    assert {"virtlogd", "bridge filter", "kvm device"} <= set(names)
