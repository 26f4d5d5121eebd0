"""The face: sorted, documented, and usable without any extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

import abreast


def test_the_face_is_sorted_and_complete():
    assert list(abreast.__all__) == sorted(abreast.__all__)
    for name in abreast.__all__:
        assert getattr(abreast, name).__doc__, name


def test_the_face_needs_no_extra():
    """A fresh interpreter that imports the face loads none of the optional packages."""
    optional = ("langchain", "langchain_core", "langgraph", "psycopg", "psycopg_pool", "typer", "rich", "greenlet")
    program = f"import sys, abreast; print([m for m in {optional!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # greenlet comes with SQLAlchemy where it is installed; nothing of ours asks for it
    assert eval(done.stdout) in ([], ["greenlet"])


def test_both_doors_have_the_same_methods():
    from abreast.hub import Abreast, Blocking

    declarations = {
        "track",
        "loader",
        "interest",
        "attribute",
        "write",
        "middleware",
        "tools",
        "tool",
        "blocking",
        "lease",
        "checkpointer",
        "gate",
        "service",
        "services",
    }
    served = {"stream"}  # hub.stream is service.stream; a synchronous application has service.blocking
    both = {name for kind in Abreast.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}
    asynchronous = both - declarations - served
    assert asynchronous == {name for name in vars(Blocking) if not name.startswith("_")}
    hub = Abreast("sqlite:///unused.db")
    for name in declarations - {"blocking"}:
        with pytest.raises(AttributeError, match=rf"hub\.blocking has no '{name}'\. hub\.{name} serves synchronous code too\."):
            getattr(hub.blocking, name)
    with pytest.raises(AttributeError, match=r"hub\.blocking has no 'nothing'\.$"):
        hub.blocking.nothing()
