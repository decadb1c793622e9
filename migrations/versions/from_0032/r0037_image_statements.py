"""What an image states of itself: format, firmware, login user, cloud-init, readiness, smallest disk, driver versions."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0037"
down_revision = "0036"

_STATEMENTS = b"""
alter table images
    add column format                 text constraint image_format_is_known check (format in ('qcow2', 'raw')),
    add column firmware               text not null default 'bios'
        constraint image_firmware_is_known check (firmware in ('bios', 'uefi')),
    add column login_user             text not null default 'tenant'
        constraint image_login_user_is_a_name check (login_user ~ '^[a-z_][a-z0-9_-]{0,31}$'),
    add column cloud_init             boolean not null default true,
    add column readiness              text not null default 'message'
        constraint image_readiness_is_known check (readiness in ('message', 'ssh', 'tcp_port')),
    add column readiness_port         integer
        constraint image_readiness_port_is_a_port check (readiness_port between 1 and 65535),
    add column disk_bytes_min         bigint constraint image_disk_is_positive check (disk_bytes_min > 0),
    add column size_bytes             bigint constraint image_size_is_positive check (size_bytes > 0),
    add column gpu_driver_version     text
        constraint image_gpu_driver_is_a_version check (gpu_driver_version ~ '^[0-9]{1,6}([.][0-9]{1,6}){1,3}$'),
    add column fabric_manager_version text,
    add constraint image_message_needs_cloud_init check (cloud_init or readiness <> 'message'),
    add constraint image_port_is_of_tcp_port check ((readiness = 'tcp_port') = (readiness_port is not null)),
    add constraint image_fabric_manager_is_of_the_driver
        check (fabric_manager_version is null
               or (gpu_driver_version is not null and fabric_manager_version = gpu_driver_version));
comment on column images.format is 'Null: not stated; nodes accept either.';
comment on column images.cloud_init is 'Whether the guest applies the NoCloud seed: keys, host key, user data, ready message.';
comment on column images.readiness is 'What shows that a guest has started, before its SSH server is asked.';
comment on column images.disk_bytes_min is 'A node whose guest gets a smaller disk refuses the image.';
"""


def upgrade() -> None:
    """Add the columns. The defaults are what images meant before; processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
