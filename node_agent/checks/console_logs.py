"""Checks that a tenant cannot fill the node's disk through its serial console: virtlogd bounds the log of each guest."""

from __future__ import annotations

from collections.abc import Mapping

from node_agent.checks.finding import Code, Finding
from node_agent.checks.libvirt_settings import QEMU, VIRTLOGD, read_libvirt_settings
from node_agent.discovery.reading import Tree

SOCKET = "run/libvirt/virtlogd-sock"
# Defaults of virtlogd.
SIZE_BYTES, BACKUPS = 2 * 2**20, 3
LOG_BYTES_MAX = 256 * 2**20
_NAME = "virtlogd"


def check_console_logs(tree: Tree) -> Finding:
    """Check the bound of each guest's console log, and that virtlogd listens."""
    qemu, virtlogd = read_libvirt_settings(tree, QEMU), read_libvirt_settings(tree, VIRTLOGD)
    return judge_console_logs(qemu, virtlogd, listens=tree.has(SOCKET))


def judge_console_logs(qemu: Mapping[str, str] | None, virtlogd: Mapping[str, str] | None, *, listens: bool) -> Finding:
    """The finding for the settings of QEMU's driver and of virtlogd; None: the file cannot be read."""
    if qemu is None or virtlogd is None:
        unread = QEMU if qemu is None else VIRTLOGD
        return Finding(_NAME, f"/{unread} cannot be read", Code.LIBVIRT_SETTINGS_UNREADABLE, "run the check as root")
    if qemu.get("stdio_handler", "logd") != "logd":
        remedy = f'set stdio_handler = "logd" in /{QEMU} and restart libvirtd'
        return Finding(_NAME, "guests write their console logs without virtlogd", Code.CONSOLE_LOG_UNBOUNDED, remedy)
    size, backups = _whole(virtlogd, "max_size", SIZE_BYTES), _whole(virtlogd, "max_backups", BACKUPS)
    if size == 0:
        remedy = f"set max_size = {SIZE_BYTES} in /{VIRTLOGD} and restart virtlogd"
        return Finding(_NAME, f"max_size = 0 in /{VIRTLOGD} bounds nothing", Code.CONSOLE_LOG_UNBOUNDED, remedy)
    bound = size * (backups + 1)
    if bound > LOG_BYTES_MAX:
        remedy = f"lower max_size or max_backups in /{VIRTLOGD} and restart virtlogd"
        found = f"a guest's console log may have {bound} bytes, more than {LOG_BYTES_MAX}"
        return Finding(_NAME, found, Code.CONSOLE_LOG_BOUND_LARGE, remedy)
    if not listens:
        return Finding(
            _NAME, f"/{SOCKET} is absent", Code.VIRTLOGD_ABSENT, "start it: systemctl enable --now virtlogd.socket"
        )
    return Finding(_NAME, f"a guest's console log has at most {bound} bytes")


def _whole(settings: Mapping[str, str], name: str, default: int) -> int:
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else default
