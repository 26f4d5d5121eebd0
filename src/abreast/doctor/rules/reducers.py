"""How writes to one key of the state are merged."""

from __future__ import annotations

import ast
import collections
import itertools
import operator
from collections.abc import Iterator
from typing import Any

from abreast.doctor.findings import Spot
from abreast.doctor.flow import mutated, still
from abreast.doctor.rule import Found, Rule
from abreast.doctor.subject import Subject
from abreast.doctor.updates import given_key, is_name, key_of, old_key, raised, surely, updates
from abreast.doctor.writes import (
    adds,
    answers,
    asked_first,
    begins_empty,
    changed,
    comes_in,
    empty,
    entries,
    goes_over,
    keys_of,
    may_write,
    meeting,
    of_messages,
    only_last,
    place_in,
    read_keys,
    read_later,
    summands,
    taken_as_objects,
    writes,
    written,
)  # fmt: skip

HISTORIES = frozenset(("messages", "history", "chat_history", "conversation"))
"""Keys that mean the conversation; another list of messages may be meant to hold the newest ones only."""

BUILTIN = (list, dict, set, collections.deque, collections.defaultdict, collections.OrderedDict, collections.Counter)
"""Types whose objects can be changed in place, and whose methods are known."""


def history_without_reducer(subject: Subject) -> Iterator[Found]:
    """A list of messages has no reducer, and a node returns only its new answer.

    The last write wins, so the conversation is one message long after that node: what the person said is gone. The rule sees
    literal lists of an AIMessage, or of what a model answered, under the keys messages, history, chat_history and conversation,
    and a message alone where a list belongs. A list that the node builds by hand from the old one is no finding, nor a prompt, a
    summary, an answer to what another key asks, or a graph that is run without messages, or only for its last message.
    """
    for node, function, key, value in writes(subject):
        channel = subject.channels.get(key)
        if channel is None or not channel.overwrites or key not in HISTORIES or not of_messages(channel, bare=True):
            continue
        if read_keys(function) - {key} or not comes_in(subject, key) or only_last(subject, key):
            continue
        literal = still(function, value)
        items = literal.elts if isinstance(literal, ast.List) else [literal]
        if items and all(answers(function, key, one) for one in items) and not _kept_by_hand(subject, key):
            yield Found(f"channel {key}", channel.spot or function.at(value), f"node {node.name} replaces the whole history.")


def parallel_writes(subject: Subject) -> Iterator[Found]:
    """Two nodes that surely run in one step both write a key that has no reducer.

    LangGraph refuses the step with InvalidUpdateError, and the results of both nodes are lost. The same happens to a node that
    `Send` starts for each item of a list, as soon as there are two items. The rule sees fixed edges, routers that always answer
    the same, `Send` for every item in a loop, a comprehension or `map`, and literal updates; nodes that conditional edges happen
    to start together are not seen, nor a `Send` behind a filter or a question for the number of items.
    """
    sure = {name: written(subject, name) for name in subject.nodes}
    plain = {name for name, channel in subject.channels.items() if channel.overwrites}
    for name, router in subject.sent.items():
        for key in sorted(sure[name] & plain):
            message = f"{router.name} starts node {name} for each item, and each writes it in one step."
            yield Found(f"channel {key}", _spot(subject, name, key), message)
    for first, second in sorted(subject.together):
        for key in sorted(sure[first] & sure[second] & plain):
            yield Found(f"channel {key}", _spot(subject, second, key), f"nodes {first} and {second} write it in one step.")


def sent_again(subject: Subject) -> Iterator[Found]:
    """A node returns the old list together with the new items, and the reducer appends.

    The reducer appends what is returned to what is there, so every item doubles each time the node runs. The rule sees
    `state["x"] + [...]`, `[*state["x"], ...]`, copies of the old list and local names for it, with `operator.add` or a reducer
    that returns `old + new`. A node that `Send` starts reads what it was sent, and is no finding; nor is the first node of runs
    that surely begin without the key.
    """
    for node, function, key, value in writes(subject):
        channel = subject.channels.get(key)
        if channel is None or channel.type is not list or not adds(subject, channel):
            continue
        built = still(function, value)
        parts = summands(built)
        if isinstance(built, ast.List):
            parts = [one.value for one in built.elts if isinstance(one, ast.Starred)]
        again = any(old_key(function, part) == key for part in (value, *parts))
        if again and not asked_first(function, key) and not begins_empty(subject, node.name, key):
            yield Found(f"node {node.name}", function.at(value), f"returns the old {key} again, and the reducer appends it.")


def colliding_keys(subject: Subject) -> Iterator[Found]:
    """Two nodes of one step write the same key into a dict that `operator.or_` merges.

    One of the two results is overwritten without a word; which one depends on the names of the nodes. The rule sees literal
    keys, and nodes that surely run together; the same constant, or the same key of the state, from both is no finding.
    """
    merged = [name for name, channel in subject.channels.items() if channel.reducer is operator.or_]
    known = {(name, key): entries(subject, name, key) for name in subject.nodes for key in merged}
    for first, second in sorted(subject.together) if merged else ():
        for key in merged:
            ours, theirs = known[first, key], known[second, key]
            for name in sorted(ours.keys() & theirs.keys()):
                if not ours[name].same_as(theirs[name]):
                    at = theirs[name].function.at(theirs[name].value)
                    yield Found(f"channel {key}", at, f"nodes {first} and {second} both write {name!r}.")


def mutating_reducer(subject: Subject) -> Iterator[Found]:
    """A reducer changes its first argument in place.

    That argument is the value that readers, streams and the caller already hold: what was handed out as the state of an
    earlier step changes behind their backs. The rule sees mutating methods, item assignments and `+=` on the first parameter of
    reducers of lists, dicts, sets and the like; a parameter that the body binds anew is taken for a copy.
    """
    for channel in subject.channels.values():
        function = subject.sources.function(channel.reducer) if channel.reducer else None
        if function is None or not function.parameters or channel.type not in BUILTIN:
            continue
        old = function.parameters[0]
        if old in function.rebound:
            continue  # the name means a copy
        for node in function.nodes:
            if any(is_name(one, old) or is_name(function.meant(one), old) for one in mutated(node)):
                yield Found(f"channel {channel.name}", function.at(node), f"its reducer {function.name} changes the old value.")


def order_matters(subject: Subject) -> Iterator[Found]:
    """A number's reducer gives another result when the same updates come in another order, and parallel nodes write it.

    Several updates of one step are folded one after the other, in the order of the nodes' names: renaming a node changes the
    result, and an average of averages is none. The rule computes reducers that consist of arithmetic on their two parameters
    and the functions sub, truediv, floordiv, mod and pow of `operator`; others are not looked into. A difference is no finding:
    LangGraph always takes the updates from the old value one by one, which gives the same in every order.
    """
    together = {key for pair in subject.together for key in written(subject, pair[0]) & written(subject, pair[1])}
    together |= {key for name in subject.sent for key in written(subject, name)}
    for channel in subject.channels.values():
        apply = _arithmetic(subject, channel.reducer) if channel.name in together else None
        if apply is None:
            continue
        try:
            uneven = any(
                abs(apply(apply(a, b), c) - apply(apply(a, c), b)) > 1e-6 for a, b, c in ((2.0, 3.0, 7.0), (5.0, 2.0, 3.0))
            )
        except (ArithmeticError, TypeError):
            continue
        if uneven:
            yield Found(f"channel {channel.name}", channel.spot, "its reducer depends on the order of the updates.")


def picked_by_place(subject: Subject) -> Iterator[Found]:
    """A node takes an item by its place out of a list that parallel nodes fill.

    The order of a fan-in is the order of the nodes' names, not that of the edges or of who finished first. A new branch, or a
    renamed node, puts something else at that place. Items must say what they are. The rule sees `state["x"][0]` in the node
    where the parallel ones meet, if nothing else writes the list and no visible run brings items of its own. A node that loops
    over the list as well may compare its items, or take any one of them for all, and is no finding.
    """
    for key, channel in subject.channels.items():
        if channel.reducer is not operator.add or channel.type is not list:
            continue
        writers = {name for name, node in subject.nodes.items() if may_write(node, key)}
        sure = {name for name in writers if key in written(subject, name)}
        pairs = set(itertools.combinations(sorted(writers), 2))
        if not pairs or writers != sure or not pairs <= subject.together:
            continue
        if not all(empty(run, key) for run in subject.runs):
            continue
        for name in meeting(subject, writers) - writers:
            for function in subject.nodes[name].functions:
                for part in function.nodes if not goes_over(function, key) else ():
                    place = place_in(part)
                    if place is not None and isinstance(part, ast.Subscript) and given_key(function, part.value) == key:
                        yield Found(f"node {name}", function.at(part), f"takes {key}[{place}] of a parallel fan-in.")


def counter_through_add(subject: Subject) -> Iterator[Found]:
    """A node returns "what I read, plus one" for a number whose reducer is `operator.add`.

    The reducer adds the returned number to the old one, so the counter doubles instead of growing by one. The rule sees
    `state["n"] + ...`, `state.get("n", 0) + ...`, local names for either, and `+=`. A node that `Send` starts reads what it was
    sent, and is no finding; nor is the first node of runs that surely begin without the key.
    """
    for node, function, key, value in writes(subject):
        channel = subject.channels.get(key)
        if channel is None or channel.type not in (int, float) or not adds(subject, channel):
            continue
        parts = summands(still(function, value))
        grown = old_key(function, value) == key and raised(function, value)
        others = [part for part in parts if old_key(function, part) != key]
        again = any(key in {key_of(node, function.state) for node in ast.walk(part)} for part in others)
        twice = grown or (len(others) < len(parts) and not again)
        if twice and not asked_first(function, key) and not begins_empty(subject, node.name, key):
            yield Found(f"node {node.name}", function.at(value), f"returns {key} plus something; the reducer adds it again.")


def whole_state(subject: Subject) -> Iterator[Found]:
    """A node returns the whole state, and at least one key appends what is returned.

    Every list with `operator.add` doubles although the node did not touch it. A node returns the keys that it changed; all
    others keep their values. The rule sees `return state`, a spread state, and copies of it, without the keys that the node
    has bound anew or taken out, and those that runs surely begin without, in their first node.
    """
    adding = {name for name, channel in subject.channels.items() if adds(subject, channel)}
    for node in subject.nodes.values():
        given = keys_of(node.input_schema, adding)
        for function in node.functions:
            for update in updates(function):
                kept = adding - set(update.written) - update.without
                doubled = sorted(name for name in kept if name in given and not begins_empty(subject, node.name, name))
                if update.whole and doubled:
                    yield Found(f"node {node.name}", function.at(update.node), f"returns the whole state: {doubled[0]} doubles.")


def mutated_input(subject: Subject) -> Iterator[Found]:
    """A node changes the state that it was given, and does not return the changed key.

    The change is no update: it is not in the checkpoint, and a resumed or reopened conversation does not have it. The rule
    sees mutating methods, `del` and assignments on `state["x"]` and on local names for it, in nodes all of whose updates can be
    read. What the node itself goes on to read may be its scratch paper, and is no finding.
    """
    for node in subject.nodes.values():
        for function in node.functions:
            returned = updates(function)
            if function.state is None or any(one.whole or not one.known for one in returned):
                continue
            kept = {key for one in returned for key in one.written}
            for part in function.nodes:
                for key in changed(function, part):
                    channel = subject.channels.get(key)
                    if channel is None or channel.type not in BUILTIN or not channel.kept or key in kept:
                        continue
                    if not read_later(function, part, key):
                        yield Found(f"node {node.name}", function.at(part), f"changes {key} in place and does not return it.")


def raw_messages(subject: Subject) -> Iterator[Found]:
    """A node returns a message as a dict, a tuple or a string, and the reducer does not make messages of them.

    `add_messages` turns them into message objects; `operator.add` keeps them as they are, and the next `.content` fails. The
    rule sees literals in the returned list, in keys declared as lists of messages, where the application reads something like
    `.content` of the key's items. A model takes dicts and tuples as they are.
    """
    for node, function, key, value in writes(subject):
        channel = subject.channels.get(key)
        if channel is None or not adds(subject, channel) or not of_messages(channel) or not taken_as_objects(subject, node, key):
            continue
        literal = still(function, value)
        for item in literal.elts if isinstance(literal, ast.List) else ():
            if isinstance(item, ast.Dict | ast.Tuple | ast.JoinedStr) or (
                isinstance(item, ast.Constant) and isinstance(item.value, str)
            ):
                yield Found(f"node {node.name}", function.at(item), f"puts something into {key} that stays no message.")


def history_sent_again(subject: Subject) -> Iterator[Found]:
    """A thread's history holds its own beginning twice: the caller sends all old messages again each turn.

    The checkpointer already has them. New copies have no ids, so nothing recognises them; the history grows with the square
    of the turns, and each copy is paid for in tokens. Measured: three or more messages arrived at once, answers among them, and
    the first two are those that the history begins with. Needs --thread.
    """
    for name, arrivals in (subject.thread.arrivals if subject.thread else {}).items():
        copies = sum(len(one.new) >= 3 and one.new[:2] == one.begin and "ai" in {kind for kind, _ in one.new} for one in arrivals)
        if copies and subject.thread:
            spot = subject.channels[name].spot if name in subject.channels else None
            number = len(subject.thread.newest.get(name, ()))
            yield Found(f"channel {name}", spot, f"its {number} messages hold their own beginning {copies + 1} times.")


def _kept_by_hand(subject: Subject, key: str) -> bool:
    """True if some node returns the old list with something new: the application keeps, and shortens, its history itself."""
    for _, function, name, value in writes(subject):
        built = still(function, value)
        parts = summands(built)
        if isinstance(built, ast.List):
            parts = [one.value for one in built.elts if isinstance(one, ast.Starred)]
        if name == key and any(old_key(function, part) == key for part in parts):
            return True
    return False


def _spot(subject: Subject, node: str, key: str) -> Spot | None:
    """The line of a key in the state class, or where a node writes it."""
    channel = subject.channels[key]
    places = (function.at(surely(function)[key]) for function in subject.nodes[node].functions)
    return channel.spot or next(places, None)


def _arithmetic(subject: Subject, reducer: Any) -> Any:
    """The reducer, if it is arithmetic on its two parameters and nothing else, so that computing it has no side effect."""
    if reducer in (operator.sub, operator.truediv, operator.floordiv, operator.mod, operator.pow):
        return reducer
    function = subject.sources.function(reducer) if reducer else None
    if function is None or len(function.parameters) != 2:
        return None
    tree = function.tree
    if isinstance(tree, ast.Lambda):
        body = tree.body
    elif (
        len(tree.body) == 1
        and isinstance(tree.body[0], ast.Return)
        and tree.body[0].value is not None
        and not tree.decorator_list
    ):
        body = tree.body[0].value
    else:
        return None
    allowed = (ast.BinOp, ast.operator, ast.Name, ast.Constant, ast.expr_context)
    plain = all(isinstance(node, allowed) for node in ast.walk(body))
    names = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
    # A reducer that keeps one side only ("the newest") is a choice, not an accident.
    return reducer if plain and isinstance(body, ast.BinOp) and names == set(function.parameters) else None


RULES = (
    Rule(
        "AB101",
        "A history without a reducer",
        history_without_reducer,
        "Declare it as Annotated[list[AnyMessage], add_messages], or inherit MessagesState.",
    ),
    Rule(
        "AB102",
        "Parallel nodes write a key without a reducer",
        parallel_writes,
        "Give the key a reducer (Annotated[list, operator.add], a merge function), or let one node write it.",
    ),
    Rule("AB103", "The old list is returned through add", sent_again, "Return only the new items."),
    Rule(
        "AB104",
        "Parallel results collide in a merged dict",
        colliding_keys,
        "Let each node write under a key of its own, or collect a list whose items carry a type.",
    ),
    Rule("AB105", "A reducer changes the old value", mutating_reducer, "Return a new value: [*old, *new], {**old, **new}."),
    Rule(
        "AB106",
        "A reducer whose result depends on the order",
        order_matters,
        "Collect the parts with an associative reducer (a sum and a count), and compute in a node that runs after them.",
    ),
    Rule(
        "AB107",
        "An item of a fan-in is picked by its place",
        picked_by_place,
        "Let each item carry a type, and look for it.",
    ),
    Rule("AB108", "A counter is read, raised and added", counter_through_add, "Return the step alone: {key: 1}."),
    Rule("AB109", "A node returns the whole state", whole_state, "Return only the keys that the node changed."),
    Rule("AB110", "A node changes its input in place", mutated_input, "Return the changed key as an update."),
    Rule("AB111", "Messages are not normalised", raw_messages, "Use add_messages as the reducer, or return message objects."),
    Rule(
        "AB112",
        "The whole history is sent again each turn",
        history_sent_again,
        "Send the new message only; the checkpointer brings the others.",
    ),
)
