"""JSON as it goes to clients: UTF-8, one line, and always valid, whatever a model or a tool has said."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any


def _other(value: Any) -> Any:
    """What the encoder does not know: the records hold mappings and sets of all kinds."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Collection) and not isinstance(value, str | bytes) else str(value)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other).encode


_ESCAPED = re.compile("[\ud800-\udfff\x85\u2028\u2029]")
"""Half characters, which UTF-8 has not, and what some clients take for the end of a line."""


def text_of(value: Any) -> str:
    """One line of JSON. Numbers that JSON has not become null."""
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_finite(value))
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encoded(value: Any) -> bytes:
    """`text_of` as bytes."""
    return text_of(value).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
