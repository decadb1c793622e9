"""Checks that the QEMU of each guest has its files, and a user, for itself: libvirt gives it both, unless it is set otherwise."""

from __future__ import annotations

import pwd
from collections.abc import Mapping

from node_agent.checks.finding import Code, Finding
from node_agent.checks.libvirt_settings import QEMU, read_libvirt_settings
from node_agent.discovery.reading import Tree

_NAME = "guest users"
SHOWN_MAX = 3


def check_separation(tree: Tree, first: int, last: int) -> Finding:
    """Check that libvirt changes the owner of a guest's files, and that no account has a user id from `first` to `last`."""
    accounts = {account.pw_uid: account.pw_name for account in pwd.getpwall()}
    return judge_separation(read_libvirt_settings(tree, QEMU), accounts, first, last)


def judge_separation(settings: Mapping[str, str] | None, accounts: Mapping[int, str], first: int, last: int) -> Finding:
    """The finding for the settings of libvirt's driver of QEMU; None: they cannot be read. `accounts`: names by user id."""
    if settings is not None and settings.get("dynamic_ownership", "1") == "0":
        found = f"dynamic_ownership = 0 in /{QEMU}: guests could not open their disks, or would share a user's"
        remedy = f"remove the line from /{QEMU} and restart libvirtd"
        return Finding(_NAME, found, Code.GUEST_OWNERSHIP_OFF, remedy)
    taken = [name for number, name in sorted(accounts.items()) if first <= number <= last]
    if taken:
        shown = ", ".join(taken[:SHOWN_MAX]) + (f" and {len(taken) - SHOWN_MAX} more" if len(taken) > SHOWN_MAX else "")
        remedy = "set BERTH_GUEST_USER_ID_FIRST to the first of 64 user ids that no account has, and release the guests first"
        return Finding(_NAME, f"accounts could read guests' disks: {shown}", Code.GUEST_USERS_TAKEN, remedy)
    if settings is None:
        return Finding(_NAME, f"/{QEMU} cannot be read", Code.LIBVIRT_SETTINGS_UNREADABLE, "run the check as root")
    return Finding(_NAME, f"each guest has one of the user ids {first} to {last}, which no account has")
