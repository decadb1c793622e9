"""The sandbox driver: a real SSH server per allocation, image files with checksums, leases on disk, no privileges."""
