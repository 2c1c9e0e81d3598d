"""A way to a PostgreSQL server that breaks when it is told to."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable


_STARTING = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"


def _refuse(client: socket.socket) -> None:
    with contextlib.suppress(OSError), client:
        while len(client.recv(65_536)) == _ASKS_FOR_ENCRYPTION:
            client.sendall(b"N")
        client.sendall(b"E" + (len(_STARTING) + 4).to_bytes(4, "big") + _STARTING)


_ASKS_FOR_ENCRYPTION = 8
"""Bytes of such a question; a connection's beginning is longer."""


class Way:
    """Passes on what is said to the server of a URL and back, on a port of its own.

    Args:
        url: The server's.
    """

    def __init__(self, url: str) -> None:
        options = conninfo_to_dict(url)
        host, port = str(options.get("host") or "127.0.0.1"), int(options.get("port") or 5432)
        self._family = socket.AF_UNIX if host.startswith("/") else socket.AF_INET
        self._server = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        user, name = options.get("user", "postgres"), options.get("dbname", "postgres")
        password = f":{options['password']}" if options.get("password") else ""
        self.port = self._listener.getsockname()[1]
        self.url = f"postgresql://{user}{password}@127.0.0.1:{self.port}/{name}"
        self.cuts = 0
        """How often it broke."""
        self._breaks: Callable[[bytes], bool] = lambda _: False
        self._when = "after"
        self._refusals = 0
        self._silent: set[socket.socket] = set()
        """The clients that hear nothing any more."""
        self._told: dict[socket.socket, bool] = {}
        """Which servers may still say something."""
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def break_at(
        self, *words: bytes, times: int = 1, when: str = "after", skipped: int = 0
    ) -> None:
        """Break when the program has said one of these words.

        Args:
            words: What it says.
            times: How often to break.
            when: "before" the server hears it, "while" it does it, or "after" it did it.
            skipped: How often it says it before that.
        """
        left = itertools.chain([None] * skipped, range(times))
        self._when = when
        self._breaks = lambda said: (
            any(word in said for word in words) and next(left, None) is not None
        )

    def break_all(self) -> None:
        """Break every connection there is."""
        for one in reversed(
            self._open
        ):  # the server first: else its end is closed, and hears it late
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def start_up(self, *, times: int) -> None:
        """Have the server seem to be starting up, for so many connections."""
        self._refusals = times

    def refuse(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        """Take no more connections, and break those there are."""
        self.refuse()
        self.break_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusals:
                    self._refusals -= 1
                    _refuse(client)
                    continue
                server = socket.socket(self._family)
                server.connect(self._server)
                self._open += [client, server]
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=self._to_client, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while said := client.recv(65_536):
                if self._breaks(said):
                    self._cut(client, server, said)
                    return
                server.sendall(said)

    def _cut(self, client: socket.socket, server: socket.socket, said: bytes) -> None:
        if self._when == "before":
            server.shutdown(socket.SHUT_RDWR)
        else:
            self._silent.add(client)
            server.sendall(said)
            server.shutdown(socket.SHUT_WR)
        if self._when == "after":
            while self._told.get(server, True):  # until it has done it, and gone
                time.sleep(0.001)
        self.cuts += 1
        client.shutdown(socket.SHUT_RDWR)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while told := server.recv(65_536):
                if client not in self._silent:
                    client.sendall(told)
        self._told[server] = False
        if client not in self._silent:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
