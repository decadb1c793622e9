"""Checks what the driver libvirt needs: a libvirtd that answers, and a directory that QEMU's users reach."""

from __future__ import annotations

from pathlib import Path

from node_agent.checks.finding import Code, Finding


def check_libvirt(uri: str) -> Finding:
    """Check that libvirtd answers at `uri`, with the packages that the driver imports."""
    name = "libvirt"
    try:
        # Not on every node: see requirements-libvirt.lock.
        import libvirt
        import pycdlib  # noqa: F401 - the driver needs it
    except ImportError as error:
        remedy = "install them: pip install --require-hashes -r requirements-libvirt.lock"
        return Finding(name, str(error), Code.LIBVIRT_PACKAGES_MISSING, remedy)
    libvirt.registerErrorHandler(lambda *_: None, None)
    try:
        connection = libvirt.open(uri)
        version = connection.getLibVersion()
        connection.close()
    except libvirt.libvirtError as error:
        remedy = "start libvirtd, and let the agent's user open its socket"
        return Finding(name, f"{uri}: {error}", Code.LIBVIRT_SILENT, remedy)
    return Finding(name, f"{uri} answers, version {version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}")


def check_traversal(directory: Path) -> Finding:
    """Check that every user can go through `directory` and all above it: QEMU of each guest runs as another user."""
    name = "guest directory"
    for place in (directory, *directory.parents):
        try:
            mode = place.stat().st_mode
        except OSError as error:
            remedy = "make the directory that BERTH_GUEST_DIR names"
            return Finding(name, f"{place}: {error.strerror}", Code.DIRECTORY_UNUSABLE, remedy)
        if not mode & 0o001:
            found = f"{place} can be traversed by its owner alone"
            return Finding(name, found, Code.GUEST_DIRECTORY_CLOSED, f"chmod o+x {place}")
    return Finding(name, f"{directory} can be traversed by QEMU's users")
