"""The users of QEMU: each guest has one for itself, the node's first user id plus the guest's first slot.

A slot is leased to one allocation until its files are wiped, and so is the user. Another agent of this host may have the same ids
by mistake: a guest does not start beside a running one with its user.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import libvirt

_GONE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


def user_of(xml: str) -> str | None:
    """The user and group that the definition runs QEMU as, `+64502:+64502`; None: it names none."""
    labels = [
        label.text
        for seclabel in ET.fromstring(xml).iterfind("seclabel")
        if seclabel.get("model") == "dac" and (label := seclabel.find("label")) is not None
    ]
    return labels[0] if labels else None


def domain_with_user_of(connection: Any, domain: Any) -> str | None:
    """The name of another running domain whose QEMU has the user of `domain`, or None. Raises libvirt.libvirtError."""
    user, own = user_of(domain.XMLDesc()), domain.UUIDString()
    for other in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        try:
            if other.UUIDString() != own and user is not None and user_of(other.XMLDesc()) == user:
                name: str = other.name()
                return name
        except libvirt.libvirtError as error:
            if error.get_error_code() not in _GONE:
                raise
    return None
