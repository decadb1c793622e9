"""The file on the common medium that a machine's configuration overwrites: 8 KiB, of a content found nowhere else on it.

Run as a program it prints the placeholder; `deploy/metal/build-deploy-medium` does. It imports nothing but the standard library.
"""

from __future__ import annotations

import sys
from typing import Final

CONFIGURATION_BYTES: Final = 8192
"""The size of the file, a multiple of a CD's sector; `node_agent.wire.deploy_medium` has the same bound."""
_MARK: Final = b'{"berth-config-placeholder": "overwritten while the medium is served"}'
PLACEHOLDER: Final = _MARK + b"\n" + b" " * (CONFIGURATION_BYTES - len(_MARK) - 2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(PLACEHOLDER)
