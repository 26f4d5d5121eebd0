"""Answers that were given before."""

from __future__ import annotations

import sqlite3
from pathlib import Path


class Answers:
    """Answers that were given before, by key, in one file, so that asking again costs nothing."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE IF NOT EXISTS answer (key TEXT PRIMARY KEY, text TEXT NOT NULL)")

    def get(self, key: str) -> str | None:
        found = self._database.execute("SELECT text FROM answer WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def put(self, key: str, text: str) -> None:
        with self._database:
            self._database.execute("INSERT OR REPLACE INTO answer VALUES (?, ?)", (key, text))
