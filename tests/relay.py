"""A socket between a hub and PostgreSQL that can lose the next answer, as a broken network does."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy.engine import URL, make_url


class Relay:
    """Passes everything on, until `lose_answer`: then one answer is thrown away and its connection ends."""

    def __init__(self, url: str, folder: Path) -> None:
        self._server = make_url(url)
        self._folder = folder
        self._question: bytes | None = None
        self._losing: set[socket.socket] = set()
        """Servers' ends of which the next answer is to be lost."""
        self.lost = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The same database, through this relay."""
        through: URL = self._server.set(host=None, port=None, query={"host": str(self._folder), "port": "5432"})
        return through.render_as_string(hide_password=False)

    def lose_answer(self, question: str) -> None:
        """The answer to the next message that holds this text does not arrive."""
        self._question = question.encode()

    def _connect(self) -> socket.socket:
        host = str(self._server.query.get("host") or self._server.host)
        port = int(str(self._server.query.get("port") or self._server.port or 5432))
        if host.startswith("/"):
            made = socket.socket(socket.AF_UNIX)
            made.connect(f"{host}/.s.PGSQL.{port}")
            return made
        return socket.create_connection((host, port))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = self._connect()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source in self._losing:
                    self.lost += 1
                    break
                if self._question is not None and self._question in data:
                    self._question = None
                    self._losing.add(target)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listener.close()


@contextmanager
def relay(url: str) -> Iterator[Relay]:
    """A relay in front of a database's server."""
    # A socket's path may have about a hundred characters: not in pytest's folder.
    with tempfile.TemporaryDirectory(prefix="abreast-") as folder:
        made = Relay(url, Path(folder))
        yield made
        made.close()
