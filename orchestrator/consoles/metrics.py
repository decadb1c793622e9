"""What an API process counts of consoles. Labels come from small fixed sets, never from input."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

OPEN = Gauge("berth_api_consoles_open", "Console sessions open, by mode", ["mode"])
REFUSED = Counter("berth_api_consoles_refused_total", "Console sessions refused, by code of the refusal", ["code"])
ENDED = Counter("berth_api_consoles_ended_total", "Console sessions ended, by reason", ["reason"])
BYTES = Counter("berth_api_console_bytes_total", "Bytes passed on in console sessions, by direction", ["direction"])
LINKS = Counter("berth_api_console_links_total", "Connections of agents for consoles, by outcome", ["outcome"])
