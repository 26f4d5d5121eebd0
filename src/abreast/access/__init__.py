"""Executes flows. The only floor that opens connections and commits; what a caller opened stays the caller's."""

from abreast.access.base import Access, Operation, aperform, govern, lead, perform, read, snapshot, write
from abreast.access.batching import Job
from abreast.access.beside import checkpoint_url, postgres_pool, sqlite_connection
from abreast.access.database import open_access
from abreast.access.holding import Held
from abreast.access.session import Attribute

__all__ = [
    "Access",
    "Attribute",
    "Held",
    "Job",
    "Operation",
    "aperform",
    "checkpoint_url",
    "govern",
    "lead",
    "open_access",
    "perform",
    "postgres_pool",
    "read",
    "snapshot",
    "sqlite_connection",
    "write",
]
