"""A saver, asked through either door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

PLACE = {"configurable": {"thread_id": "t"}}
TOKEN = "__abreast_token"
"""The key of a run's right to write, in `configurable`."""


class Savers:
    """A saver's methods, through either door. What comes back is plain, with `thread` for the thread's name."""

    def __init__(self, saver: Any, door: Any, thread: str, right: dict[str, Any] | None = None) -> None:
        self.saver, self.door, self.thread, self._right = saver, door, thread, right or {}

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        if self.door.kind == "sync":
            return getattr(self.saver, method)(*arguments, **named)
        return self.door.wait(getattr(self.saver, f"a{method}")(*arguments, **named))

    def config(self, **place: Any) -> dict[str, Any]:
        return {"configurable": {"thread_id": self.thread, "checkpoint_ns": "", **self._right, **place}}

    def put(self, number: int, parent: str | None = None, ns: str = "", **metadata: Any) -> str:
        """A checkpoint with this number as its id."""
        checkpoint = {**empty_checkpoint(), "id": f"{number:08}", "ts": str(number)}
        version = self.saver.get_next_version(None, None)
        checkpoint["channel_values"] = {"n": number, "list": [number, {"deep": "값"}], "none": None}
        checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], version)
        place = self.config(checkpoint_ns=ns, **({"checkpoint_id": parent} if parent else {}))
        written = self.call(
            "put", place, checkpoint, {"source": "loop", "step": number, **metadata}, checkpoint["channel_versions"]
        )
        assert written == {"configurable": {"thread_id": self.thread, "checkpoint_ns": ns, "checkpoint_id": f"{number:08}"}}
        return f"{number:08}"

    def list(self, config: Any = None, **narrowed: Any) -> Any:
        async def collect() -> Any:
            return [one async for one in self.saver.alist(config, **narrowed)]

        found = self.call("list", config, **narrowed) if self.door.kind == "sync" else self.door.wait(collect())
        return [self.plain(one) for one in found if one.config["configurable"]["thread_id"] == self.thread]

    def get(self, **place: Any) -> Any:
        return self.plain(self.call("get_tuple", self.config(**place)))

    def plain(self, found: Any) -> Any:
        if found is None:
            return None
        checkpoint = {**found.checkpoint, "channel_versions": sorted(found.checkpoint["channel_versions"])}

        def without(config: Any) -> Any:
            place = {**config["configurable"]} if config else {}
            assert place.pop("thread_id", self.thread) == self.thread
            place.pop(TOKEN, None)
            return place

        return (without(found.config), without(found.parent_config), checkpoint, found.metadata, found.pending_writes)


def stock_place(database: Any, tmp_path: Path) -> str:
    """The database of the fixture `checkpointer`, LangGraph's own saver."""
    return f"sqlite:///{tmp_path / 'checkpoints.db'}" if database.kind == "sqlite" else str(database.url)
