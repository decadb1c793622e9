"""Trees of files as sysfs and procfs show a machine: two sockets, eight GPUs, NVMe disks, network ports.

Shapes and spellings are those of a real machine with eight H100; serials are made up.
"""

from __future__ import annotations

import shutil
from pathlib import Path

GPU_ADDRESSES = [
    "0000:0f:00.0", "0000:2d:00.0", "0000:44:00.0", "0000:5b:00.0",
    "0000:89:00.0", "0000:a8:00.0", "0000:c0:00.0", "0000:d8:00.0",
]  # fmt: skip
NIC_ADDRESSES = ["0000:1a:00.0", "0000:9c:00.0"]
NVME_ADDRESSES = ["0000:01:00.0", "0000:81:00.0"]
SOCKETS = 2
CORES = 4
NUMA_BYTES = 1024 * 2**30


class RecordedTree:
    """A machine's tree below `root`; the methods change it as faults and repairs would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._processors()
        for index, address in enumerate(GPU_ADDRESSES):
            self.pci(address, "0x10de", "0x2330", "0x030200", "nvidia", index // 4, 40 + index)
        self.pci("0000:0e:00.0", "0x1000", "0xc030", "0x060400", "pcieport", 0, 3)
        self.pci("0000:07:00.0", "0x10de", "0x22a3", "0x068000", "nvidia-nvswitch", 0, 4)
        for index, address in enumerate(NVME_ADDRESSES):
            self.pci(address, "0x144d", "0xa80a", "0x010802", "nvme", index, 60 + index)
            self._nvme(index, address)
        for index, address in enumerate(NIC_ADDRESSES):
            self.pci(address, "0x15b3", "0x1021", "0x020000", "mlx5_core", index, 80 + index)
            self._nic(f"ens{index}np0", address, index)
        self.write("sys/class/net/lo/operstate", "unknown\n")
        self.write("sys/block/loop0/size", "0\n")
        self._firmware()

    def write(self, path: str, content: str | bytes) -> None:
        """Write one file and the directories above it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, path: str, target: str) -> None:
        """Make one symbolic link."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).symlink_to(target)

    def remove_pci(self, address: str) -> None:
        """Take a device off the bus."""
        shutil.rmtree(self.root / f"sys/bus/pci/devices/{address}")

    def pci(self, address: str, vendor: str, device: str, kind: str, driver: str, numa: int, group: int) -> None:
        """Put a device on the bus."""
        directory = f"sys/bus/pci/devices/{address}"
        self.write(f"{directory}/vendor", f"{vendor}\n")
        self.write(f"{directory}/device", f"{device}\n")
        self.write(f"{directory}/class", f"{kind}\n")
        self.write(f"{directory}/numa_node", f"{numa}\n")
        self.link(f"{directory}/driver", f"../../../../bus/pci/drivers/{driver}")
        self.link(f"{directory}/iommu_group", f"../../../../kernel/iommu_groups/{group}")

    def _processors(self) -> None:
        for number in range(SOCKETS * CORES * 2):
            socket = number // CORES % SOCKETS
            topology = f"sys/devices/system/cpu/cpu{number}/topology"
            self.write(f"{topology}/physical_package_id", f"{socket}\n")
            self.write(f"{topology}/core_id", f"{number % CORES}\n")
        self.write("sys/devices/system/cpu/cpufreq/boost", "1\n")
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n")
        self.write("proc/meminfo", f"MemTotal:       {SOCKETS * NUMA_BYTES // 1024} kB\nMemFree:  12 kB\n")
        for node in range(SOCKETS):
            self.write(
                f"sys/devices/system/node/node{node}/cpulist",
                f"{node * 4}-{node * 4 + 3},{node * 4 + 8}-{node * 4 + 11}\n",
            )
            self.write(
                f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:       {NUMA_BYTES // 1024} kB\n"
            )

    def _nvme(self, index: int, address: str) -> None:
        disk = f"sys/block/nvme{index}n1"
        self.write(f"{disk}/size", f"{3_840_755_982_336 // 512}\n")
        self.write(f"{disk}/ro", "0\n")
        self.write(f"{disk}/queue/rotational", "0\n")
        self.write(f"{disk}/queue/write_zeroes_max_bytes", "131072\n")
        self.write(f"{disk}/queue/discard_max_bytes", "2199023255040\n")
        self.write(f"{disk}/device/model", "SAMSUNG MZQL23T8HCLS-00A07              \n")
        self.write(f"{disk}/device/serial", f"S64HNE0T{index:06d}      \n")
        self.link(f"{disk}/device/device", f"../../../bus/pci/devices/{address}")

    def _nic(self, name: str, address: str, index: int) -> None:
        port = f"sys/class/net/{name}"
        self.write(f"{port}/address", f"94:6D:AE:00:00:{index:02x}\n")
        self.write(f"{port}/operstate", "up\n")
        self.write(f"{port}/speed", "400000\n")
        self.link(f"{port}/device", f"../../../bus/pci/devices/{address}")

    def _firmware(self) -> None:
        dmi = {
            "sys_vendor": "Supermicro", "product_name": "SYS-821GE-TNHR", "product_serial": "E000000X0000001",
            "bios_vendor": "American Megatrends International, LLC.", "bios_version": "2.1", "bios_date": "01/15/2024",
        }  # fmt: skip
        for name, value in dmi.items():
            self.write(f"sys/class/dmi/id/{name}", f"{value}\n")
        self.write("sys/firmware/efi/fw_platform_size", "64\n")
        self.write("proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
        self.write("sys/class/tpm/tpm0/tpm_version_major", "2\n")
        self.write("sys/class/tpm/tpm0/device/description", "TPM 2.0 Device\n")
