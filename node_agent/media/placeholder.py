"""The file on the common medium that a machine's configuration overwrites: 8 KiB, of a content found nowhere else on it.

Run as a program it prints the placeholder; `deploy/metal/build-deploy-medium` does. It imports nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

CONFIGURATION_BYTES: Final = 8192
"""The size of the file, a multiple of a CD's sector."""
_MARK: Final = b'{"berth-configuration-placeholder": "f1c7e0d4a9b84c2e9d3b5a6071e8f2c4"}'
PLACEHOLDER: Final = _MARK + b"\n" + b" " * (CONFIGURATION_BYTES - len(_MARK) - 2) + b"\n"


class ConfigurationTooLong(ValueError):
    """The configuration does not fit into the file of the medium."""


def padded(configuration: Mapping[str, Any]) -> bytes:
    """The configuration as the file's content: JSON, filled with spaces. Raises ConfigurationTooLong."""
    text = json.dumps(configuration, separators=(",", ":"), sort_keys=True).encode()
    if len(text) > CONFIGURATION_BYTES - 1:
        raise ConfigurationTooLong(f"the configuration has {len(text)} bytes; at most {CONFIGURATION_BYTES - 1} fit")
    return text + b" " * (CONFIGURATION_BYTES - len(text) - 1) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(PLACEHOLDER)
