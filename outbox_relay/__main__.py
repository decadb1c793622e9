"""`python -m outbox_relay`: the relay process. Exit status 0 after SIGTERM, 1 with a sentence when it cannot go on."""

from __future__ import annotations

import asyncio
import sys

import structlog
from prometheus_client import disable_created_metrics
from pydantic import ValidationError

from berth.process.health_server import CannotListen
from berth.process.limits.open_files import raise_open_files
from berth.process.logs import configure_logging
from berth.process.settings import describe_wrong_settings
from outbox_relay.problems import RelayProblem
from outbox_relay.relay import Relay
from outbox_relay.settings import Settings


def main() -> int:
    """Run the relay until SIGTERM or SIGINT; return the exit status."""
    configure_logging()
    raise_open_files()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # unused series
    log = structlog.get_logger("relay")
    try:
        settings = Settings()
    except ValidationError as error:
        sys.stderr.write(f"relay: {describe_wrong_settings(error)}\n")
        return 1
    try:
        asyncio.run(Relay(settings).run())
    except (CannotListen, RelayProblem) as problem:
        log.error("ended", why=str(problem))
        sys.stderr.write(f"{problem}\n")
        return 1
    except Exception as error:
        log.exception("ended")
        sys.stderr.write(f"the relay ended on an error that it does not know: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
