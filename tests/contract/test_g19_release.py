"""G19: an operator takes a thread from a run that he knows to be dead. Should it live, it has lost the thread."""

from __future__ import annotations

import pytest

from abreast import Abreast, ConfigurationError, InputError, LeaseLostError, update
from abreast.access import perform
from leasing import Leased, apart
from planner import CONTEXT, Plan
from talk import CORNERS
from talk import update as put_state


def say(thread):
    return {"messages": [("user", thread)]}


def test_g19_a_released_thread_is_free_at_once_and_its_run_is_fenced_out(database, hubs, door):
    def frozen(_):
        apart(lambda: door(talk.hub).release("t"))
        assert door(talk.hub).holder("t") is None
        assert talk.elsewhere("next").status == "succeeded"
        return "too late"

    talk = Leased(database, hubs, door, frozen)
    with pytest.raises(LeaseLostError):
        talk.run("first")
    assert talk.said() == ["first", "next", "ok"]
    assert talk.run("again").status == "succeeded"
    assert talk.said()[3:] == ["again", "ok"]


@CORNERS
def test_g19_the_old_run_is_fenced_out_before_anybody_else_has_begun(database, hubs, door):
    """Its token counts for nothing, also beside the checkpoints, where only the newest one that was announced counts."""
    talk = Leased(database, hubs, door)
    talk.run("first")
    with pytest.raises(LeaseLostError, match="lost"), talk.hub.lease("t") as held:  # noqa: PT012
        apart(lambda: door(talk.hub).release("t"))
        with pytest.raises(LeaseLostError):
            put_state(door, talk.agent, held.config, say("late"))
        with pytest.raises(LeaseLostError):
            talk.hub.blocking.apply("w1", update(Plan, "p1", title="late"), lease=held.lease)
        with pytest.raises(LeaseLostError), talk.hub.write("w1", lease=held.lease):
            pass
    after = talk.lease()
    assert (after.run, after.token) == (None, held.lease.token + 1)
    assert talk.said() == ["first", "ok"]
    with talk.hub.lease("t") as mine:
        put_state(door, talk.agent, mine.config, say("mine"))
    assert mine.lease.token == held.lease.token + 2
    assert (talk.said()[-1], talk.head()) == ("mine", 3)


@CORNERS
def test_g19_the_token_beside_the_checkpoints_is_passed_after_a_restore(database, hubs, door):
    """The leases are from a copy of before: the old run's token stands above all that they would give out."""
    talk = Leased(database, hubs, door)
    talk.run("first")
    table = "abreast_lease" if database.kind == "sqlite" else "abreast.lease"
    talk.sql(f"update {table} set token = 40")
    with pytest.raises(LeaseLostError), talk.hub.lease("t") as held:  # noqa: PT012
        assert held.lease.token == 41
        talk.sql(f"update {table} set token = 7, run = 'of then'")
        apart(lambda: door(talk.hub).release("t"))
        with pytest.raises(LeaseLostError):
            put_state(door, talk.agent, held.config, say("late"))
    assert talk.lease().token == 42
    assert talk.run("next").status == "succeeded"
    assert talk.said() == ["first", "ok", "next", "ok"]


@CORNERS
def test_g19_whoever_has_begun_since_keeps_the_thread(database, hubs, door):
    talk = Leased(database, hubs, door)
    with talk.hub.lease("t") as held:
        operator = talk.hub._core
        assert perform(operator.access, operator.leases.take_back("t", above=held.lease.token)) is None
        assert perform(operator.access, operator.leases.take_back("t", above=99)) is None
    assert talk.lease().token == held.lease.token


@CORNERS
def test_g19_a_thread_that_nobody_has_may_be_released(database, hubs, door):
    talk = Leased(database, hubs, door)
    door(talk.hub).release("never")
    assert door(talk.hub).holder("never") is None
    talk.run("first")
    for _ in range(2):
        door(talk.hub).release("t")
    assert talk.run("next", context=CONTEXT).status == "succeeded"
    with pytest.raises(InputError):
        door(talk.hub).release("t\0")


def test_g19_a_hub_without_tables_has_no_leases_to_release(database, hubs, door):
    hub: Abreast = hubs(database)
    with pytest.raises(ConfigurationError, match="tracks no tables"):
        door(hub).release("t")
