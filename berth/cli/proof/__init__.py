"""Commands about proofs: wipe certificates, and the demo that proves a wipe on emulated machines."""
