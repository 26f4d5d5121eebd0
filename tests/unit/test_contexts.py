"""Which workspaces a run context names."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest

from abreast import ContextError, RunContext
from abreast.hub.operations import workspaces_of_context


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (RunContext("t1", "u_1", "w1"), ("w1",)),
        ({"workspace": "w1"}, ("w1",)),
        ({"workspace_id": 7}, ("7",)),
        (SimpleNamespace(workspace_id=uuid.UUID(int=1)), ("00000000-0000-0000-0000-000000000001",)),
        ({"workspaces": ["w2", "w1"]}, ("w2", "w1")),
        ({"workspaces": (2, 1)}, ("2", "1")),
        ({"workspaces": {"w2", "w1"}}, ("w1", "w2")),
        ({"workspaces": None, "workspace": "w1"}, ("w1",)),
        ({"workspaces": [], "workspace": "w1"}, ("w1",)),
    ],
)
def test_a_context_names_its_workspaces(context, expected):
    assert workspaces_of_context(context) == expected


@pytest.mark.parametrize("context", [None, {}, object(), {"workspaces": []}, {"workspace": None}])
def test_a_context_that_names_none_is_an_error(context):
    with pytest.raises(ContextError):
        workspaces_of_context(context)
