"""A way to a PostgreSQL server that breaks when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable


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
        self._is_before = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def break_at(self, word: bytes, *, times: int = 1, before: bool = False) -> None:
        """Break at this word: the server hears it, and its answer is lost; or it is lost itself."""
        left = iter(range(times))
        self._is_before = before
        self._breaks = lambda said: word in said and next(left, None) is not None

    def break_all(self) -> None:
        """Break every connection there is."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections."""
        self.break_all()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(self._family)
                server.connect(self._server)
                self._open += [client, server]
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=_pass, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client, server:
            while said := client.recv(65_536):
                if self._breaks(said):
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                    if self._is_before:
                        return
                    server.sendall(said)
                    server.shutdown(socket.SHUT_WR)
                    while server.recv(65_536):  # until it has done it
                        pass
                    return
                server.sendall(said)


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while said := source.recv(65_536):
            target.sendall(said)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
