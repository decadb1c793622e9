"""What a process says on its metrics port. Asked by polling, so cheaply: a new httpx client takes 20 ms of a processor."""

from __future__ import annotations

import http.client

NO_ANSWER = (OSError, http.client.HTTPException)
"""What `get` raises while no server answers."""
ANSWER_SECONDS_MAX = 5.0


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET at a port of this machine. Raises one of `NO_ANSWER`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
