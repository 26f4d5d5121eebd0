"""The arms: `default` is what a model gets from the library, on either database; the others are what their names say."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from sqlalchemy.orm import Session, registry

from abreast import RunContext
from abreast.core.current import CURRENT
from abreast.core.render import CHANGES
from abreast.errors import InputError
from abreast.evals.cases import KINDS, THREAD, WORKSPACE, Case, make, messages
from abreast.evals.forms import NAMED, arm
from abreast.langgraph import SyncState
from abreast.testing import ScriptedModel

CASES = {case.kind: case for case in make(number=1)}
CONTEXT = RunContext(tenant="t", user="u_1", workspace=WORKSPACE)


def table(case: Case) -> Any:
    """The product's table as an application would declare it, with the columns that this case's rows have."""
    names = list(case.batch.rows[0].values)
    columns = [sa.Column("id", sa.Text, primary_key=True), sa.Column("workspace_id", sa.Text, nullable=False)]
    for name in names[1:]:
        numbers = isinstance(case.batch.rows[0].values[name], int)
        columns.append(sa.Column(name, sa.Integer if numbers else sa.Text))
    mapped = registry()
    model = type("Entity", (), {"__table__": sa.Table(case.product.entity_type, mapped.metadata, *columns)})
    mapped.map_declaratively(model)
    return model


def before(case: Case) -> dict[str, dict[str, Any]]:
    """The rows before the events, by undoing these."""
    rows = {row.entity_id: dict(row.values) for row in case.batch.rows}
    for event in reversed(case.events):
        row = rows.setdefault(event.entity_id, {"id": event.entity_id})
        row.update({name: values[0] for name, values in event.values.items()})
    return dict(sorted(rows.items()))


@pytest.mark.parametrize("kind", ["plain", "several", "deleted", "other_field", "long", "many", "follow_up", "planted"])
def test_default_is_what_the_library_makes_of_the_same_rows_and_changes(database, hubs, kind: str) -> None:
    case = CASES[kind]
    entity, engine = table(case), database.engine()
    sa.MetaData.create_all(entity.__table__.metadata, engine)
    hub = hubs(database)
    hub.track(
        entity, workspace="workspace_id", record="all", labels=case.product.labels, title=case.product.title_field,
        noun=case.product.noun,
    )  # fmt: skip
    hub.blocking.install()
    at = entity.__table__

    def write(statement: Any, actor: Any = None) -> None:
        with Session(engine) as session:
            if actor is None or actor.type == "unknown":
                session.execute(statement)
                session.commit()
                return
            with hub.attribute(session, actor=actor):
                session.execute(statement)
                session.commit()

    rows = before(case)
    for row in rows.values():
        write(at.insert().values(workspace_id=WORKSPACE, **row))
    name, first = case.product.title_field, next(iter(rows.values()))
    for number in range(40 - len(rows) - 1):
        write(at.update().where(at.c.id == first["id"]).values({name: f"was {number}"}))
    write(at.update().where(at.c.id == first["id"]).values({name: first[name]}))

    *earlier, last = case.turns
    model = ScriptedModel(last.answer)

    def node(state: SyncState, config: RunnableConfig) -> dict[str, Any]:
        call = hub.blocking.prepare(state, config, context=CONTEXT)
        return call.answered(model.invoke(call.messages))

    graph = StateGraph(SyncState)
    graph.add_node("model", node)
    graph.add_edge("__start__", "model")
    compiled = graph.compile(checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": THREAD}}
    said = [one for turn in earlier for one in (HumanMessage(turn.question), AIMessage(turn.answer))]
    compiled.invoke({"messages": [*said, HumanMessage(last.question)]}, config)
    for event in case.events:
        if event.op == "delete":
            write(at.delete().where(at.c.id == event.entity_id), event.actor)
        else:
            now = {name: values[1] for name, values in event.values.items()}
            write(at.update().where(at.c.id == event.entity_id).values(now), event.actor)
    compiled.invoke({"messages": [HumanMessage(case.question)]}, config)

    expected = arm("default")(case, True)[1:]
    assert [(one.type, one.content) for one in model.requests[-1]] == [(one.type, one.content) for one in expected]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("name", list(NAMED))
def test_every_arm_makes_a_request_of_every_kind_and_leaves_the_past_as_it_is(name: str, kind: str) -> None:
    case = CASES[kind]
    given = arm(name)(case, True)
    assert isinstance(given[0], SystemMessage)
    assert sum(isinstance(one, SystemMessage) for one in given) == 1
    assert isinstance(given[-1], ToolMessage if kind == "after_tool" else HumanMessage)
    assert given[1:-1] == messages(case, ceiling=name == "ceiling")[1:-1]
    text = "".join(str(one.content) for one in given)
    assert (CURRENT in text) == (name not in ("no_sync", "ceiling"))
    told = bool(case.batch.events) and name not in ("no_sync", "ceiling", "system_snapshot")
    assert (CHANGES in text) == told
    assert (CURRENT in str(given[0].content)) == name.startswith("system")


def test_a_spelled_arm_has_its_parts_in_its_order() -> None:
    case = CASES["plain"]
    text = str(arm("as_is:D C V Q V R")(case, True)[-1].content)
    assert text.index(CHANGES) < text.index(CURRENT) < text.index(case.question)
    assert text.count(case.question) == 2
    assert arm("as_is:D C V Q V R")(case, True) == arm("default")(case, True)
    assert len(arm("none:Q")(case, True)) == 2
    assert len(arm("trim:Q")(CASES["long"], True)) == 6


def test_fixall_corrects_the_old_answer_and_drop_leaves_its_turns_out() -> None:
    case = CASES["long"]
    old = [str(one.content) for one in messages(case)[1:-1]]
    fixed = [str(one.content) for one in arm("fixall:Q")(case, True)[1:-1]]
    assert old != fixed
    assert all(case.judge(text) != "stale" for text in fixed)
    assert not any(case.title in str(one.content) for one in arm("drop:Q")(case, True)[1:-1])


@pytest.mark.parametrize("name", ["", "tails", "as_is", "as_is:", "as_is:Z", "was:Q"])
def test_an_unknown_arm_is_an_error_that_lists_the_known(name: str) -> None:
    with pytest.raises(InputError, match="Named arms: no_sync, ceiling"):
        arm(name)
