"""Reading a machine's sysfs: everything is found, and nothing in it can stop the reading."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.discovery.discover import combine, fit
from node_agent.discovery.hardware import read_hardware
from node_agent.discovery.nvml_report import NvmlReport
from node_agent.discovery.reading import FILE_BYTES_MAX, Gaps, pci_address
from node_agent.protocol import RESULT_BYTES_MAX
from node_agent.reporter import completed
from node_agent.wire import topology as wire
from tests.discovery.trees import CORES, GPU_ADDRESSES, NIC_ADDRESSES, NUMA_BYTES, SOCKETS, RecordedTree

GPU = f"sys/bus/pci/devices/{GPU_ADDRESSES[0]}"


def test_a_machine_with_two_sockets_and_eight_gpus(tree: RecordedTree) -> None:
    found = read_hardware("libvirt", tree.root)
    processors = found.processors
    assert (processors.sockets, processors.cores, processors.threads) == (SOCKETS, SOCKETS * CORES, SOCKETS * CORES * 2)
    assert processors.model == "Intel(R) Xeon(R) Platinum 8480C"
    assert found.memory_bytes == SOCKETS * NUMA_BYTES
    assert [(node.number, node.processors, node.memory_bytes) for node in found.numa_nodes or ()] == [
        (0, "0-3,8-11", NUMA_BYTES), (1, "4-7,12-15", NUMA_BYTES),
    ]  # fmt: skip
    assert [(g.address, g.pci_id, g.numa_node, g.iommu_group, g.driver) for g in found.gpus or ()] == [
        (address, "10de:2330", index // 4, 40 + index, "nvidia") for index, address in enumerate(GPU_ADDRESSES)
    ]
    assert [(n.name, n.address, n.mac, n.link_up, n.speed_mbps, n.numa_node) for n in found.nics or ()] == [
        (f"ens{i}np0", address, f"94:6d:ae:00:00:0{i}", True, 400_000, i) for i, address in enumerate(NIC_ADDRESSES)
    ]
    disk = (found.disks or [])[1]
    assert (disk.name, disk.model, disk.serial) == ("nvme1n1", "SAMSUNG MZQL23T8HCLS-00A07", "S64HNE0T000001")
    assert (disk.size_bytes, disk.rotational, disk.numa_node) == (3_840_755_982_336, False, 1)
    assert disk.wipe_methods == ["overwrite", "write_zeroes", "discard"]
    assert len(found.disks or ()) == 2
    assert (found.firmware.product, found.firmware.boot_mode) == ("SYS-821GE-TNHR", "uefi")
    assert found.tpm == wire.TrustedModule(version=2, description="TPM 2.0 Device")
    assert found.gaps == []


def test_bridges_are_left_out_and_switches_of_nvlink_are_not(tree: RecordedTree) -> None:
    listed = {device.address for device in read_hardware("libvirt", tree.root).pci_devices or ()}
    assert "0000:0e:00.0" not in listed
    assert "0000:07:00.0" in listed


def test_equal_hardware_gives_equal_bytes(tmp_path: Path) -> None:
    first, second = (read_hardware("libvirt", RecordedTree(tmp_path / name).root) for name in ("a", "b"))
    assert first.canonical() == second.canonical()
    assert first.digest() == second.digest()
    assert wire.Topology.model_validate_json(first.canonical()) == first


def _oversized(tree: RecordedTree) -> None:
    tree.write(f"{GPU}/numa_node", b"1" * (FILE_BYTES_MAX + 1))


def _no_number(tree: RecordedTree) -> None:
    tree.write(f"{GPU}/numa_node", "many\n")


def _directory(tree: RecordedTree) -> None:
    (tree.root / GPU / "numa_node").unlink()
    (tree.root / GPU / "numa_node").mkdir()


def _fifo(tree: RecordedTree) -> None:
    (tree.root / GPU / "numa_node").unlink()
    os.mkfifo(tree.root / GPU / "numa_node")


def _loop(tree: RecordedTree) -> None:
    (tree.root / GPU / "numa_node").unlink()
    tree.link(f"{GPU}/numa_node", "numa_node")


def _garbage(tree: RecordedTree) -> None:
    tree.write(f"{GPU}/numa_node", bytes(range(256)))


def _huge(tree: RecordedTree) -> None:
    tree.write(f"{GPU}/numa_node", "9" * 30)


@pytest.mark.parametrize("spoil", [_oversized, _no_number, _directory, _loop, _garbage, _huge])
def test_an_unreadable_file_is_a_gap(tree: RecordedTree, spoil: Callable[[RecordedTree], None]) -> None:
    spoil(tree)
    found = read_hardware("libvirt", tree.root)
    assert [gpu.numa_node for gpu in found.gpus or ()] == [None, 0, 0, 0, 1, 1, 1, 1]
    assert [gap.subject for gap in found.gaps] == [f"{GPU}/numa_node"]
    assert found.gaps[0].reason


def test_a_large_file_is_not_taken(tree: RecordedTree) -> None:
    tree.write("sys/class/dmi/id/sys_vendor", b"x" * (FILE_BYTES_MAX + 1))
    found = read_hardware("libvirt", tree.root)
    assert found.firmware.vendor is None
    assert [gap.subject for gap in found.gaps] == ["sys/class/dmi/id/sys_vendor"]


@pytest.mark.timeout(20)
def test_a_fifo_does_not_block(tree: RecordedTree) -> None:
    _fifo(tree)
    assert [gpu.numa_node for gpu in read_hardware("libvirt", tree.root).gpus or ()][:2] == [None, 0]


def test_a_missing_file_is_an_absent_field(tree: RecordedTree) -> None:
    (tree.root / GPU / "numa_node").unlink()
    (tree.root / GPU / "iommu_group").unlink()
    found = read_hardware("libvirt", tree.root)
    assert (found.gpus or [])[0].numa_node is None
    assert (found.gpus or [])[0].iommu_group is None
    assert found.gaps == []


def test_a_device_that_cannot_be_read_is_a_gap_with_its_address(tree: RecordedTree) -> None:
    (tree.root / GPU / "vendor").unlink()
    found = read_hardware("libvirt", tree.root)
    assert [gpu.address for gpu in found.gpus or ()] == GPU_ADDRESSES[1:]
    assert GPU_ADDRESSES[0] in found.gaps[0].subject


def test_without_sysfs_everything_is_absent(tmp_path: Path) -> None:
    found = read_hardware("sandbox", tmp_path)
    assert (found.gpus, found.nics, found.disks, found.numa_nodes, found.pci_devices) == (None,) * 5
    assert [gap.subject for gap in found.gaps] == ["pci_devices"]


def test_strange_text_is_printable(tree: RecordedTree) -> None:
    tree.write("sys/class/dmi/id/sys_vendor", b"\x1b[31m" + "Ünï\u202e".encode() + b"\x00" + b"x" * 500)
    vendor = read_hardware("libvirt", tree.root).firmware.vendor
    assert vendor is not None
    assert vendor.startswith("?[31m?n??x")
    assert len(vendor) == wire.TEXT_MAX


def test_a_disk_that_its_driver_has_not_identified_has_no_serial(tree: RecordedTree) -> None:
    tree.write("sys/block/nvme0n1/device/serial", "(efault)\n")
    assert (read_hardware("libvirt", tree.root).disks or [])[0].serial is None


def test_a_read_only_disk_cannot_be_wiped(tree: RecordedTree) -> None:
    tree.write("sys/block/nvme0n1/ro", "1\n")
    assert (read_hardware("libvirt", tree.root).disks or [])[0].wipe_methods == []


def test_a_virtual_function_is_no_port_of_the_machine(tree: RecordedTree) -> None:
    tree.pci("0000:1a:00.1", "0x15b3", "0x101e", "0x020000", "mlx5_core", 0, 90)
    tree.link("sys/bus/pci/devices/0000:1a:00.1/physfn", "../0000:1a:00.0")
    (tree.root / "sys/bus/pci/devices/0000:1a:00.0").mkdir(exist_ok=True)
    tree.link("sys/class/net/ens0v0/device", "../../../bus/pci/devices/0000:1a:00.1")
    assert [nic.name for nic in read_hardware("libvirt", tree.root).nics or ()] == ["ens0np0", "ens1np0"]


def test_lists_and_gaps_are_bounded(tree: RecordedTree) -> None:
    for number in range(wire.GPUS_MAX + 5):
        tree.pci(f"0001:{number:02x}:00.0", "0x10de", "0x2330", "0x030200", "vfio-pci", 0, number)
        tree.write(f"sys/bus/pci/devices/0001:{number:02x}:00.0/numa_node", "none")
    for number in range(wire.DISKS_MAX + 1):
        tree.write(f"sys/block/nvme{number + 10}n1/size", "8\n")
    found = read_hardware("libvirt", tree.root)
    assert len(found.gpus or ()) == wire.GPUS_MAX
    assert len(found.disks or ()) == wire.DISKS_MAX
    assert len(found.gaps) == wire.GAPS_MAX
    assert found.gaps[-1].reason == "more were left out"


def test_the_largest_topology_fits_into_a_result() -> None:
    longest, name, most, large = "x" * wire.TEXT_MAX, "x" * wire.NAME_MAX, 65_535, 2**53 - 1
    address = "ffffffff:ff:1f.7"
    gpu = wire.Gpu(
        address=address, pci_id="ffff:ffff", driver=name, numa_node=most, iommu_group=most, lost=False, model=longest,
        uuid=longest, serial=longest, firmware=longest, memory_bytes=large, mig_enabled=False, mig_instances=most,
        nvlinks=most, nvlinks_up=most,
    )  # fmt: skip
    nic = wire.Nic(
        name=name, address=address, mac=":".join(["ff"] * 20), driver=name, numa_node=most, link_up=False,
        speed_mbps=2**31 - 1,
    )  # fmt: skip
    disk = wire.Disk(
        name=name, model=longest, serial=longest, size_bytes=large, rotational=False, numa_node=most,
        wipe_methods=["overwrite", "write_zeroes", "discard"],
    )  # fmt: skip
    device = wire.PciDevice(
        address=address, pci_id="ffff:ffff", pci_class="ffffff", driver=name, numa_node=most, iommu_group=most
    )
    gaps = Gaps()
    for number in range(100):
        gaps.add(f"{number}{longest}", "y" * wire.REASON_MAX)
    largest = wire.Topology(
        driver=name,
        processors=wire.Processors(architecture=longest, model=longest, sockets=most, cores=most, threads=most),
        memory_bytes=large,
        numa_nodes=[wire.NumaNode(number=most, processors=longest, memory_bytes=large)] * wire.NUMA_NODES_MAX,
        gpus=[gpu] * wire.GPUS_MAX, nics=[nic] * wire.NICS_MAX, disks=[disk] * wire.DISKS_MAX,
        pci_devices=[device] * wire.PCI_DEVICES_MAX,
        firmware=wire.Firmware(
            vendor=longest, product=longest, serial=longest, bios_vendor=longest, bios_version=longest,
            bios_date=longest, boot_mode="uefi", kernel=longest,
        ),
        tpm=wire.TrustedModule(version=most, description=longest), nvml_driver=longest, gaps=gaps.all(),
    )  # fmt: skip
    fitted = fit(largest)
    assert fitted.pci_devices is None
    assert len(fitted.canonical()) <= wire.TOPOLOGY_BYTES_MAX
    report = completed(2**53 - 1, fitted.model_dump(mode="json", exclude_none=True))
    assert len(report.model_dump_json()) <= RESULT_BYTES_MAX
    assert "gpus" in (report.result or {})


@pytest.mark.parametrize(
    ("spelling", "address"),
    [
        ("00000000:0F:00.0", "0000:0f:00.0"), ("0000:0f:00.0", "0000:0f:00.0"), ("00010000:AB:1F.7", "10000:ab:1f.7"),
        ("0:1:0.0", "0000:01:00.0"), ("0000:0f:20.0", None), ("", None), (None, None), ("0000:0f:00.0\n../x", None),
    ],
)  # fmt: skip
def test_addresses_have_one_spelling(spelling: str | None, address: str | None) -> None:
    assert pci_address(spelling) == address


def test_nvml_alone_names_the_gpus_where_there_is_no_pci_bus(tmp_path: Path) -> None:
    hardware = read_hardware("libvirt", tmp_path)
    said = NvmlReport(answered=True, gpus=[wire.Gpu(address=GPU_ADDRESSES[0], model="H100")])
    assert [gpu.address for gpu in combine(hardware, said).gpus or ()] == [GPU_ADDRESSES[0]]
    assert combine(hardware, NvmlReport(answered=False)).gpus is None


def test_gaps_of_another_part_keep_that_more_were_left_out_at_the_end() -> None:
    full = Gaps()
    for number in range(wire.GAPS_MAX + 1):
        full.add(f"file {number}", "unreadable")
    joined = Gaps()
    joined.add_all(full.all()[-3:])
    joined.add("nvml", "no answer")
    assert [gap.subject for gap in joined.all()] == [
        f"file {wire.GAPS_MAX - 3}",
        f"file {wire.GAPS_MAX - 2}",
        "nvml",
        "gaps",
    ]
