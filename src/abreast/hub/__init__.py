"""The hub and its two doors."""

from abreast.hub.abreast import Abreast
from abreast.hub.blocking import Blocking

__all__ = ["Abreast", "Blocking"]
