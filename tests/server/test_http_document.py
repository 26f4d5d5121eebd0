"""What schemathesis finds when it takes the OpenAPI document at its word: no failure, and no answer that is not in it."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS as KNOWN
from schemathesis.checks import load_all_checks

from abreast.server import Streams
from office import MOVE, Office, Person

EXAMPLES = 12
"""Requests an operation and kind of data."""

load_all_checks()
CHECKS = [
    KNOWN.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    )
]

MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


@pytest.fixture
def office(database: Any, hubs: Any) -> Office:
    # Streams that follow for ever would keep every request.
    return Office(database, hubs, MOVE, streams=Streams(lifetime=0.05))


@pytest.fixture
def mina(office: Office, serve: Any) -> Person:
    return Person(serve(office.app, streams=office.streams))


def test_no_request_finds_a_failure_or_an_answer_that_is_not_documented(mina):
    thread = mina.thread()
    say(mina, thread)
    there = {
        "thread": thread,
        "workspace": "w1",
        "message": mina.get(f"/threads/{thread}/messages")["items"][0]["id"],
        "run": mina.get(f"/threads/{thread}/runs")["items"][0]["id"],
        "approval": mina.waiting(thread)["id"],
    }
    quiet = mina.thread()
    say(mina, quiet)
    idle = {**there, "thread": quiet, "message": mina.get(f"/threads/{quiet}/messages")["items"][0]["id"]}
    schema = schemathesis.openapi.from_url(f"{mina.client.base_url}/openapi.json")
    statuses: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in MODES:
            ids = idle if operation.method == "put" else there  # a conversation that waits cannot go back
            try_out(operation, mode, mina, ids, statuses.setdefault(operation.label, set()))
    assert len(statuses) == 16
    # Of each something was done, so that it is not the refusals alone that were looked at.
    assert [label for label, seen in statuses.items() if not seen - {404, 422}] == []


def say(mina: Person, thread: str) -> None:
    """A message, and its answer or its question. The streams of this server are too short to follow."""
    mina.send(thread)
    while mina.get(f"/threads/{thread}")["status"] == "busy":
        pass


def try_out(operation: Any, mode: Any, mina: Person, there: dict[str, str], seen: set[int]) -> None:
    """One operation with data that fits the document, or with data that does not; about what is there, and what is not."""

    @seed(20261130)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def asked(case: Any, known: bool) -> None:
        if known:
            case.path_parameters = {name: there.get(name, value) for name, value in (case.path_parameters or {}).items()}
            if isinstance(case.body, dict):
                case.body = {name: there.get(name, value) if value else value for name, value in case.body.items()}
        response = case.call(headers=mina.headers, timeout=30)
        seen.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    try:
        asked()
    except Unsatisfiable:  # every text may be an id: there is nothing that would not fit
        assert mode is schemathesis.GenerationMode.NEGATIVE
