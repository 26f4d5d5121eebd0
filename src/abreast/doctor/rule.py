"""What a rule is: a small function from a subject to what it found, with a code, a title and a mend."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abreast.doctor.findings import Spot

if TYPE_CHECKING:
    from abreast.doctor.subject import Subject


@dataclass(frozen=True, slots=True)
class Found:
    """One hit of a rule: the place in the graph ("node plan", "channel notes"), the line if there is one, what is wrong."""

    place: str
    spot: Spot | None
    message: str


@dataclass(frozen=True, slots=True)
class Rule:
    """`look` is called once for the graph and once for each of its subgraphs; its docstring is the text of the rule's page."""

    code: str
    title: str
    look: Callable[[Subject], Iterable[Found]]
    mend: str

    @property
    def text(self) -> str:
        """What the rule finds, why that is bad, and what it cannot see."""
        return inspect.getdoc(self.look) or ""

    @property
    def url(self) -> str:
        """The rule's page, from the root of the documentation."""
        return f"docs/reference/doctor/{self.code.lower()}.md"
