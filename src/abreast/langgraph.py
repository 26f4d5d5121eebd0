"""What a hand-made LangGraph graph needs of abreast: the state class that carries the mark."""

from abreast.agents.state import SyncState

__all__ = ["SyncState"]
