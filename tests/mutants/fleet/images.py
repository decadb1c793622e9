"""Mutants of images: their statement, the import, and guests by statement."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CATALOGUE = "orchestrator/catalogue"
STATED = "tests/api/test_image_statements.py"
IMPORT = "tests/image_import/test_import.py"
INSPECTION = "tests/image_import/test_inspection.py"
READINESS = "tests/libvirt_driver/test_readiness.py"
TASK = "tests/allocations/test_image_parameters.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "images: a PUT without a statement resets it",
        "catalogue",
        f"{CATALOGUE}/store.py",
        "    if statement is not None:\n        await tx.execute(_PUT_STATEMENT",
        "    statement = statement or ImageStatement()\n    if statement is not None:\n        await tx.execute(_PUT_STATEMENT",
        (f"{STATED}::test_a_statement_is_kept_until_it_is_replaced_as_a_whole",),
    ),
    Mutant(
        "images: the size of another file is kept",
        "catalogue",
        f"{CATALOGUE}/store.py",
        "    size_bytes = case when excluded.sha256 = old.sha256 then old.size_bytes end,\n",
        "",
        (f"{STATED}::test_a_statement_is_kept_until_it_is_replaced_as_a_whole",),
    ),
    Mutant(
        "images: user data are accepted without cloud-init",
        "catalogue",
        "orchestrator/placement/admission.py",
        "    if wanted.has_user_data and not image.cloud_init:",
        "    if False:",
        (f"{STATED}::test_user_data_need_an_image_with_cloud_init",),
    ),
    Mutant(
        "images: an agent of the version before is asked for a check",
        "tasks",
        "orchestrator/tasks/store/tasks.py",
        "    checked = instructions.checks_images\n",
        "    checked = True\n",
        (TASK,),
    ),
    Mutant(
        "import: a file that changed is accepted",
        "client",
        "berth/cli/images/fetching.py",
        "        if read != before.st_size or _version(before) != _version(after) or _version(after) != _version(named):",
        "        if False:",
        (f"{IMPORT}::test_a_file_that_changes_while_it_is_read_is_refused",),
    ),
    Mutant(
        "import: packed content is unpacked",
        "client",
        "berth/cli/images/fetching.py",
        '            if answer.headers.get("content-encoding", "identity") != "identity":',
        "            if False:",
        (f"{IMPORT}::test_a_download_is_bounded_never_unpacked_and_whole",),
    ),
    Mutant(
        "import: a copy is made under its final name",
        "client",
        "berth/cli/images/importing.py",
        '        yield Path(own) / "image"',
        '        yield (directory or Path(own)) / "image"',
        (f"{IMPORT}::test_a_bad_file_changes_nothing",),
    ),
    Mutant(
        "import: a backing file is accepted",
        "client",
        "berth/cli/images/qcow2.py",
        "    if backing:\n",
        "    if False:\n",
        (f"{INSPECTION}::test_a_qcow2_that_is_more_than_a_disk_is_refused",),
    ),
    Mutant(
        "import: what it unpacks to is not bounded",
        "client",
        "berth/cli/images/inspection.py",
        "    if virtual_bytes > bounds.virtual_bytes_max:",
        "    if False:",
        (f"{INSPECTION}::test_a_qcow2_that_is_more_than_a_disk_is_refused",),
    ),
    Mutant(
        "libvirt: one answer of a port is enough",
        "agent",
        "node_agent/drivers/libvirt/readiness.py",
        "ANSWERS_NEEDED = 2",
        "ANSWERS_NEEDED = 1",
        (f"{READINESS}::test_one_answer_between_refusals_is_not_enough",),
    ),
    Mutant(
        "libvirt: another format than stated is accepted",
        "agent",
        "node_agent/drivers/libvirt/disks.py",
        '    if stated not in (None, said["format"]):',
        "    if False:",
        ("tests/libvirt_driver/test_disks.py::test_an_image_of_another_format_than_stated_is_refused",),
    ),
    Mutant(
        "libvirt: the port of the readiness is open to the network",
        "agent",
        "node_agent/drivers/libvirt/domain.py",
        'CHECK_HOST = "127.0.0.1"',
        'CHECK_HOST = "0.0.0.0"',
        ("tests/libvirt_driver/test_definition.py::test_the_port_of_its_readiness_is_for_this_host_alone",),
    ),
]
