"""Text: how names and values stand in what a model reads. Pure.

Everything that comes from data is written as a JSON value or as one bare word inside a line, with control, format and
separator characters escaped. No value can start a line, so none can look like a heading, a revision or an instruction
of the block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from abreast.types import CountTokens

HISTORY = "*"
"""Where `Wording.tools` keeps the history tool; no entity type has this name."""

WRITES = "+"
"""In `Wording.tools` where there are write tools whose rows have no version of their own."""

_JSON = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(", ", ": "))
_BARE = re.compile(r"\w[\w.\-]{0,63}")
# Controls, separators, invisible and direction-changing characters, lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_TOKEN = re.compile(r"<(?=[|｜/A-Za-z_])|\[(?=/?[A-Z][A-Z_]+\])")
"""What the special tokens of models begin with: `<|im_end|>`, `</s>`, `<start_of_turn>`, `[INST]`."""


def count_bytes(text: str) -> int:
    """Tokens of a text where no counter is given: UTF-8 bytes over 3, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


@dataclass(frozen=True)
class Wording:
    """What people call things, and what may not be shown: labels and redacted fields by entity type, workspace columns
    that need not be repeated in every row, the tools to point at (the list tool by entity type, the history tool under
    `HISTORY`), and by entity type the field that names a row, what such a row is called, and the key fields."""

    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    redacted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    implied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    nouns: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)


def quoted(value: Any) -> str:
    """A JSON value on one line, with nothing in it that a reader or a tokenizer could take for structure."""
    if type(value) is int:
        return str(value)
    if (
        type(value) is str
        and value.isascii()
        and value.isprintable()
        and '"' not in value
        and "\\" not in value
        and "<" not in value
        and "[" not in value
    ):
        return f'"{value}"'  # what the encoder would make of it, in a quarter of the time: most values of a block
    text = _JSON.encode(value)
    if not (text.isascii() and text.isprintable()):
        text = _UNSAFE.sub(lambda found: json.dumps(found.group())[1:-1], text)
    if "<" in text or "[" in text:
        text = _TOKEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    return text


@lru_cache(maxsize=4096)
def word(name: str) -> str:
    """A name as one bare word where it is one, as a JSON string otherwise."""
    return name if _BARE.fullmatch(name) and not _UNSAFE.search(name) else quoted(name)


def shortened(value: Any, limit: int) -> Any:
    """The value with strings cut to `limit` characters; lists and objects that are longer as text, cut."""
    if isinstance(value, str):
        return value if len(value) <= limit else value[:limit].rstrip("…") + "…"
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False)
        return value if len(text) <= limit else text[:limit] + "…"
    return value


def cost(lines: Sequence[str], count: CountTokens) -> int:
    """Tokens of these lines, their ends included."""
    return sum(count(line) + 1 for line in lines)


def cut(text: str, room: int, count: CountTokens, write: Callable[[str], str] = str) -> str:
    """The beginning of a text that fits into `room` tokens when it is written so; at least a few words of it."""
    low, high = min(len(text), 24), len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(write(text[:middle] + "…")) <= room else (low, middle - 1)
    return write(text if low == len(text) else text[:low] + "…")
