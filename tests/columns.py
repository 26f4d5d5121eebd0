"""Column types of an application's own that several tests write and read."""

from __future__ import annotations

import enum
from decimal import Decimal
from typing import Any

import sqlalchemy as sa


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Cents(sa.types.TypeDecorator[Decimal]):
    """Money, kept in cents."""

    impl = sa.Integer
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else int(value * 100)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return None if value is None else Decimal(value) / 100
