"""Mutants of drivers and of what performs their plans."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SHARED = "node_agent/drivers"
SANDBOX = f"{SHARED}/sandbox"
LIBVIRT = f"{SHARED}/libvirt"
DISKS = "tests/libvirt_driver/test_disks.py"
READINESS = ("tests/libvirt_driver/test_readiness.py::test_nothing_else_is_the_message",)
DEFINITION = "tests/libvirt_driver/test_definition.py"
PLANS = "tests/drivers/test_plans.py"
TWICE = (f"{PLANS}::test_a_phase_that_runs_again_at_once_changes_nothing[sandbox]",)
VERBS = (f"{PLANS}::test_verbs_keep_the_claim_and_only_rebuild_discards_the_disk[sandbox]",)
PROGRESS = ("tests/node_agent/test_progress_of_phases.py",)

LOOKING = ("tests/drivers/test_looking.py",)

INTERRUPTED = "tests/libvirt_driver/test_interrupted_wipes.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "driver: a disk is emptied before it is marked as wiped",
        "agent",
        f"{LIBVIRT}/disks.py",
        """        if mark is not None and sampled:
            mark()
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
""",
        """        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
        if mark is not None and sampled:
            mark()
""",
        (INTERRUPTED,),
    ),
    Mutant(
        "driver: an empty disk is marked as wiped",
        "agent",
        f"{LIBVIRT}/disks.py",
        "if mark is not None and sampled:",
        "if mark is not None:",
        (INTERRUPTED,),
    ),
    Mutant(
        "driver: the release of a guest whose disk is gone drops its lease",
        "agent",
        f"{LIBVIRT}/release.py",
        "if not proven and self._must_prove and directory.was_up:",
        "if False:",
        (INTERRUPTED,),
    ),
    Mutant(
        "driver: what a provision left without a disk is kept",
        "agent",
        f"{LIBVIRT}/release.py",
        "if not proven and self._must_prove and directory.was_up:",
        "if not proven and self._must_prove:",
        (INTERRUPTED,),
    ),
    Mutant(
        "driver: a hanging look is asked again",
        "agent",
        f"{SHARED}/looking.py",
        "if self._running is not None and not self._running.done():",
        "if False:",
        LOOKING,
    ),
    Mutant(
        "driver: what an earlier look found answers a later question",
        "agent",
        f"{SHARED}/looking.py",
        "        self._running = running = asyncio.create_task(self._driver.inventory())",
        "        running = self._running or asyncio.create_task(self._driver.inventory())\n        self._running = running",
        LOOKING,
    ),
    Mutant(
        "driver: a release writes before it removes",
        "agent",
        f"{SHARED}/records.py",
        "            self.record_file.rename(self.releasing_file)",
        "            write_durably(self.releasing_file, self.record_file.read_bytes())",
        ("tests/drivers/test_conformance.py::test_withstands_a_full_disk[sandbox]",),
    ),
    Mutant(
        "driver: a lease replaces another",
        "agent",
        f"{SHARED}/leases.py",
        "            path.hardlink_to(aside)",
        "            aside.rename(path)",
        (f"{PLANS}::test_one_of_two_orders_for_a_slot_meets_the_lease_of_the_other[sandbox]",),
    ),
    Mutant(
        "driver: a lease is made in place",
        "agent",
        f"{SHARED}/leases.py",
        "        aside = self._aside(slot)\n        try:\n            _write_synced(aside, content)",
        "        aside = path\n        try:\n            _write_synced(aside, content)",
        (f"{PLANS}::test_one_of_two_orders_for_a_slot_meets_the_lease_of_the_other[sandbox]",),
    ),
    Mutant(
        "driver: starts of a guest are identified by directory",
        "agent",
        f"{SANDBOX}/launching.py",
        'boot = self._boots.get(event["boot"])',
        'boot = next((b for b in self._boots.values() if str(b.path) == event["path"]), None)',
        ("tests/drivers/test_sandbox_starts.py",),
    ),
    Mutant(
        "driver: a repeated boot starts a second guest",
        "agent",
        f"{SANDBOX}/provisioning.py",
        "if self._boot_under_way is None or not alive(self._directory):",
        "if True:",
        TWICE,
    ),
    Mutant(
        "driver: a repeated phase makes another host key",
        "agent",
        f"{SANDBOX}/provisioning.py",
        "        if self._host_key:\n",
        "        if False:\n",
        TWICE,
    ),
    Mutant(
        "driver: remains of the older fence are kept",
        "agent",
        f"{SANDBOX}/provisioning.py",
        "        if self._directory.exists():\n            await self._node.remove",
        "        if False:\n            await self._node.remove",
        (f"{PLANS}::test_the_newer_fence_replaces_what_is_there[sandbox]",),
    ),
    Mutant(
        "driver: what is stopped is started again",
        "agent",
        f"{SANDBOX}/verbs.py",
        '"stopped" if verb is Verb.STOP else "running"',
        '"running"',
        VERBS,
    ),
    Mutant(
        "driver: rebuild keeps the directory",
        "agent",
        f"{SANDBOX}/release.py",
        "gone = await in_thread(partial(wipe_content, self._directory.path))",
        'gone = await in_thread(partial(wipe_content, self._directory.path / "nothing"))',
        VERBS,
    ),
    Mutant(
        "driver: a dead guest counts as running",
        "agent",
        f"{SHARED}/inventory.py",
        "if state is GuestState.RUNNING and not is_alive(directory):",
        "if False:",
        (f"{PLANS}::test_a_guest_that_dies_is_reported_and_comes_back[sandbox]",),
    ),
    Mutant(
        "driver: a release of nothing proves a device",
        "agent",
        f"{SANDBOX}/release.py",
        '[proof.model_dump(mode="json")] if self._was_there else []',
        '[proof.model_dump(mode="json")]',
        ("tests/drivers/test_conformance.py::test_conforms[sandbox-releases_what_never_existed]",),
    ),
    Mutant(
        "driver: a device that is not proven wiped is released",
        "agent",
        "node_agent/effects.py",
        "result.leases_released and not unproven:",
        "result.leases_released:",
        PROGRESS,
    ),
    Mutant(
        "driver: shares of a phase are reported without bound",
        "agent",
        "node_agent/effects.py",
        " or self._reports >= PROGRESS_REPORTS_MAX",
        "",
        PROGRESS,
    ),
    Mutant(
        "driver: shares of a phase are reported every ten seconds",
        "agent",
        "node_agent/effects.py",
        "        self._pause *= 2\n",
        "",
        PROGRESS,
    ),
    Mutant(
        "libvirt: a guest reaches its host",
        "agent",
        f"{LIBVIRT}/domain.py",
        'RESTRICT = "on"',
        'RESTRICT = "off"',
        (f"{DEFINITION}::test_the_network_of_a_guest_reaches_nothing",),
    ),
    Mutant(
        "libvirt: the shared image is given to a guest's user",
        "agent",
        f"{LIBVIRT}/domain.py",
        'ET.SubElement(base, "seclabel", model="dac", relabel="no")',
        'ET.SubElement(base, "seclabel", model="dac", relabel="yes")',
        (f"{DEFINITION}::test_the_disk_is_encrypted_and_the_image_stays_roots",),
    ),
    Mutant(
        "libvirt: domains of another node count as this node's",
        "agent",
        f"{LIBVIRT}/domain.py",
        'UUID(read["id"]), int(read["fence"]), slots, read["directory"])',
        'UUID(read["id"]), int(read["fence"]), slots, "")',
        (f"{DEFINITION}::test_a_domain_names_its_owner",),
    ),
    Mutant(
        "libvirt: an image may name a file of the node",
        "agent",
        f"{LIBVIRT}/disks.py",
        'if "backing-filename" in said or "full-backing-filename" in said or "data-file" in data:',
        "if False:",
        (f"{DISKS}::test_an_image_that_is_more_than_a_disk_is_refused",),
    ),
    Mutant(
        "libvirt: an image may unpack to any size",
        "agent",
        f"{LIBVIRT}/disks.py",
        'if said["virtual-size"] > virtual_bytes_max:',
        "if False:",
        (f"{DISKS}::test_an_image_that_unpacks_to_more_than_the_disk_is_refused",),
    ),
    Mutant(
        "libvirt: other users may read a disk",
        "agent",
        f"{LIBVIRT}/disks.py",
        "umask=0o077",
        "umask=0o022",
        (f"{DISKS}::test_a_disk_is_encrypted_private_and_made_once",),
    ),
    Mutant(
        "libvirt: a wipe is not read back",
        "agent",
        f"{LIBVIRT}/disks.py",
        'if page[:length].strip(b"\\0"):',
        "if False:",
        (f"{DISKS}::test_a_wipe_that_does_not_reach_the_medium_is_found",),
    ),
    Mutant(
        "libvirt: a wipe follows a link",
        "agent",
        f"{LIBVIRT}/disks.py",
        "os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_RDWR | os.O_CLOEXEC",
        (f"{DISKS}::test_a_wipe_follows_no_link",),
    ),
    Mutant(
        "libvirt: a line with the nonce in it is the ready message",
        "agent",
        f"{LIBVIRT}/readiness.py",
        "if line == expected:",
        "if expected in line:",
        READINESS,
    ),
    Mutant(
        "libvirt: a guest may say on its channel as much as it wants",
        "agent",
        f"{LIBVIRT}/channel.py",
        "if self._heard > CHANNEL_BYTES_MAX:",
        "if False:",
        READINESS,
    ),
    Mutant(
        "images: one that a guest uses is evicted",
        "agent",
        f"{SHARED}/images.py",
        "if path != keep and file.st_nlink == 1:",
        "if path != keep:",
        ("tests/images/test_image_cache.py::test_an_image_in_use_is_not_evicted_and_one_that_is_released_is",),
    ),
    Mutant(
        "images: the bytes of the cache are not bounded",
        "agent",
        f"{SHARED}/images.py",
        " and total <= self._bounds.bytes_max",
        "",
        ("tests/images/test_image_cache.py::test_the_oldest_unused_image_is_evicted",),
    ),
    Mutant(
        "images: a guest may write the image of all",
        "agent",
        f"{SHARED}/images.py",
        "cached.chmod(0o444)",
        "cached.chmod(0o644)",
        ("tests/images/test_image_cache.py::test_a_link_is_the_cached_file_for_reading_alone_and_is_made_once",),
    ),
    Mutant(
        "images: a range of another version is joined",
        "agent",
        f"{SHARED}/downloads.py",
        "if self.received and not self._continues(response):",
        "if False:",
        ("tests/images/test_downloads.py::test_a_file_that_changes_meanwhile_is_fetched_whole",),
    ),
    Mutant(
        "images: what was received is not kept",
        "agent",
        f"{SHARED}/downloads.py",
        "                # Also of a connection that broke: the next one goes on behind it.\n"
        "                await self._keep(file, pending)",
        "                await self._keep(file, pending if response.is_closed else bytearray())",
        ("tests/images/test_downloads.py::test_a_download_goes_on_where_it_broke_off",),
    ),
]
