"""Reads the settings of libvirt's daemons: `name = value` a line, as libvirt's own parser takes them (src/util/virconf.c)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from node_agent.discovery.reading import Tree

QEMU = "etc/libvirt/qemu.conf"
VIRTLOGD = "etc/libvirt/virtlogd.conf"
_SETTING = re.compile(
    r"""^\s*(?P<name>[A-Za-z_][\w]*)\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<number>-?\d+))"""
)


def read_libvirt_settings(tree: Tree, path: str) -> Mapping[str, str] | None:
    """Texts and numbers of the file, lists left out. Empty without a file: the defaults hold. None if it cannot be read."""
    raw = tree.raw(path)
    if raw is None:
        return None if tree.has(path) else {}
    settings: dict[str, str] = {}
    for line in raw.decode("utf-8", errors="replace").splitlines():
        if found := _SETTING.match(line):
            value = next(text for text in (found["double"], found["single"], found["number"]) if text is not None)
            settings.setdefault(found["name"], value)  # of two the first holds
    return settings
