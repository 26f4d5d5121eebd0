"""Answers that were given before."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from threading import Lock


class Answers:
    """Answers that were given before, by key, in one file that processes share, so that asking again costs nothing and an
    interrupted run goes on where it stopped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._database = sqlite3.connect(path, timeout=60, check_same_thread=False)
        with self._database:
            self._database.execute("CREATE TABLE IF NOT EXISTS answer (key TEXT PRIMARY KEY, text TEXT NOT NULL)")

    def get(self, key: str) -> str | None:
        with self._lock:
            found = self._database.execute("SELECT text FROM answer WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def put(self, key: str, text: str) -> None:
        with self._lock, self._database:
            self._database.execute("INSERT OR REPLACE INTO answer VALUES (?, ?)", (key, text))

    def close(self) -> None:
        self._database.close()
