"""CHECK constraints of images, and of the sizes of guests in SKUs."""

from __future__ import annotations

from tests.schema.checks import Check, least, length, one_of

IMAGES: dict[str, Check] = {
    "images_name_check": length("images", "name", 1, 100),
    "images_sha256_check": Check(
        "images",
        tuple({"sha256": text} for text in ("0" * 63, "0" * 65, "A" * 64, "g" * 64)),
        ({"sha256": "0af9" * 16},),
    ),
    "images_shapes_check": Check(
        "images", ({"shapes": []}, {"shapes": ["unknown"]}), ({"shapes": ["baremetal", "gpu_slice"]},)
    ),
    "images_state_check": one_of("images", "state", "active", "retired"),
    "image_format_is_known": one_of("images", "format", "qcow2", "raw"),
    "image_firmware_is_known": one_of("images", "firmware", "bios", "uefi"),
    "image_login_user_is_a_name": Check(
        "images",
        tuple({"login_user": text} for text in ("", "Root", "0a", "a" * 33, "a b")),
        ({"login_user": "_a-" + "b" * 29},),
    ),
    "image_readiness_is_known": Check(
        "images", ({"readiness": "unknown"},), ({"readiness": "ssh"}, {"readiness": "tcp_port", "readiness_port": 1})
    ),
    "image_readiness_port_is_a_port": Check(
        "images",
        tuple({"readiness": "tcp_port", "readiness_port": port} for port in (0, 65_536)),
        tuple({"readiness": "tcp_port", "readiness_port": port} for port in (1, 65_535)),
    ),
    "image_disk_is_positive": least("images", "disk_bytes_min", 1),
    "image_size_is_positive": least("images", "size_bytes", 1),
    "image_gpu_driver_is_a_version": Check(
        "images",
        tuple(
            {"gpu_driver_version": text} for text in ("", "570", "570.", "570.124.06-1", "1.2.3.4.5", "1" * 7 + ".0")
        ),
        ({"gpu_driver_version": "570.124.06"}, {"gpu_driver_version": "1.2.3.4"}),
    ),
    "image_message_needs_cloud_init": Check(
        "images", ({"cloud_init": False},), ({"cloud_init": False, "readiness": "ssh"}, {"cloud_init": True})
    ),
    "image_port_is_of_tcp_port": Check(
        "images",
        ({"readiness": "tcp_port"}, {"readiness_port": 80}, {"readiness": "ssh", "readiness_port": 80}),
        ({"readiness": "tcp_port", "readiness_port": 80},),
    ),
    "image_fabric_manager_is_of_the_driver": Check(
        "images",
        ({"fabric_manager_version": "570.1"}, {"gpu_driver_version": "570.2", "fabric_manager_version": "570.1"}),
        ({"gpu_driver_version": "570.1", "fabric_manager_version": "570.1"}, {"gpu_driver_version": "570.1"}),
    ),
    "images_url_check": length("images", "url", 0, 2000),
}

GUEST_SIZES: dict[str, Check] = {
    "sku_memory_is_bounded": Check(
        "skus",
        tuple({"memory_bytes_per_gpu": wrong} for wrong in (0, 63 << 20, (64 << 20) + 1, (1 << 46) + (1 << 20))),
        ({"memory_bytes_per_gpu": 64 << 20}, {"memory_bytes_per_gpu": 1 << 46}),
    ),
    "sku_size_is_of_slices": Check(
        "skus",
        ({"shape": "baremetal", "vcpus_per_gpu": 1}, {"shape": "baremetal", "memory_bytes_per_gpu": 64 << 20}),
        ({"shape": "baremetal"}, {"vcpus_per_gpu": 1, "memory_bytes_per_gpu": 64 << 20}),
    ),
    "sku_vcpus_are_bounded": Check(
        "skus", ({"vcpus_per_gpu": 0}, {"vcpus_per_gpu": 257}), ({"vcpus_per_gpu": 1}, {"vcpus_per_gpu": 256})
    ),
}
