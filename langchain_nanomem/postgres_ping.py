"""Whether a server that took no connection will soon take one."""

from __future__ import annotations

import socket
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

_COMING = ("starting up", "shutting down", "in recovery mode", "not yet accepting connections")
_SECONDS = 2
"""How long to wait for an answer; libpq takes no less."""


def will_soon_be_there(told: str, conninfo: str) -> bool:
    """Whether a server starts, stops or recovers, in whatever language it says so, or did just now.

    Of a connection that failed libpq gives the text alone. Its ping knows the code (57P03), but
    stops all threads until it has an answer; so it is for who says it in words that aren't known,
    and can be reached.

    Args:
        told: What it said.
        conninfo: How to get at it.
    """
    if any(words in told for words in _COMING):
        return True
    options: dict[str, Any] = conninfo_to_dict(conninfo)
    if not _is_reached(options):
        return False
    briefly = make_conninfo(**options | {"connect_timeout": _SECONDS})
    answer = pq.PGconn.ping(briefly.encode())
    return answer == pq.Ping.REJECT or (answer == pq.Ping.OK and _connects(briefly))


def _connects(conninfo: str) -> bool:
    """Whether it takes connections by now."""
    try:
        psycopg.connect(conninfo).close()
    except psycopg.Error:
        return False
    return True


def _is_reached(options: dict[str, Any]) -> bool:
    """Whether one takes connections there; True where that is not a matter of a network."""
    hosts = str(options.get("hostaddr") or options.get("host") or "").split(",")
    ports = str(options.get("port") or 5432).split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    return any(map(_listens, hosts, ports))


def _listens(host: str, port: str) -> bool:
    if not host or host[0] in "/@":
        return True
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True
