"""How writes to one key of the state are merged."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Iterator
from typing import Any

from abreast.doctor.rule import Found, Rule
from abreast.doctor.sources import Function
from abreast.doctor.subject import Channel, Node, Subject
from abreast.doctor.updates import is_name, key_of, surely, updates

HISTORIES = frozenset(("messages", "history", "chat_history", "conversation"))
"""Keys that mean the conversation; another list of messages may be meant to hold the newest ones only."""

MUTATING = frozenset(
    ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update", "setdefault", "add", "discard")
)
"""Methods of list, dict and set that change the object in place."""


def history_without_reducer(subject: Subject) -> Iterator[Found]:
    """A list of messages has no reducer, and a node returns only its new message.

    The last write wins, so the conversation is one message long after that node: what the person said is gone. The rule sees
    list literals under the keys messages, history, chat_history and conversation; a list that the node builds by hand from the
    old one is no finding.
    """
    for node, function, key, value in _writes(subject):
        channel = subject.channels.get(key)
        if channel is None or not channel.overwrites or key not in HISTORIES or not _of_messages(channel):
            continue
        literal = function.meant(value)
        if isinstance(literal, ast.List) and literal.elts and not any(isinstance(one, ast.Starred) for one in literal.elts):
            yield Found(f"channel {key}", channel.spot or function.at(value), f"node {node.name} replaces the whole history.")


def parallel_writes(subject: Subject) -> Iterator[Found]:
    """Two nodes that surely run in one step both write a key that has no reducer.

    LangGraph refuses the step with InvalidUpdateError, and the results of both nodes are lost. The same happens to a node that
    `Send` starts for each item of a list, as soon as there are two items. The rule sees fixed edges, `Send` in a loop or a
    comprehension, and literal updates; nodes that conditional edges happen to start together are not seen.
    """
    for name, router in subject.sent.items():
        for function in subject.nodes[name].functions:
            for key, node in surely(function).items():
                channel = subject.channels.get(key)
                if channel is not None and channel.overwrites:
                    message = f"{router.name} starts node {name} for each item, and each writes it in one step."
                    yield Found(f"channel {key}", channel.spot or function.at(node), message)
    for first, second in sorted(subject.together):
        keys = {key for function in subject.nodes[first].functions for key in surely(function)}
        for function in subject.nodes[second].functions:
            for key, node in surely(function).items():
                channel = subject.channels.get(key)
                if key in keys and channel is not None and channel.overwrites:
                    yield Found(
                        f"channel {key}", channel.spot or function.at(node), f"nodes {first} and {second} write it in one step."
                    )


def sent_again(subject: Subject) -> Iterator[Found]:
    """A node returns the old list together with the new items, and the reducer is `operator.add`.

    The reducer appends what is returned to what is there, so every item doubles each time the node runs. The rule sees
    `state["x"] + [...]` and `[*state["x"], ...]`.
    """
    for node, function, key, value in _writes(subject):
        channel = subject.channels.get(key)
        if channel is None or channel.reducer is not operator.add or channel.type is not list:
            continue
        built = function.meant(value)
        parts: list[ast.expr] = []
        if isinstance(built, ast.BinOp) and isinstance(built.op, ast.Add):
            parts = [built.left, built.right]
        elif isinstance(built, ast.List):
            parts = [one.value for one in built.elts if isinstance(one, ast.Starred)]
        if any(key_of(part, function.state) == key for part in parts):
            yield Found(f"node {node.name}", function.at(value), f"returns the old {key} again, and the reducer appends it.")


def colliding_keys(subject: Subject) -> Iterator[Found]:
    """Two nodes of one step write the same key into a dict that `operator.or_` merges.

    One of the two results is overwritten without a word; which one depends on the names of the nodes. The rule sees literal
    keys and fixed edges.
    """
    for first, second in sorted(subject.together):
        ours = {key: value for function in subject.nodes[first].functions for key, value in surely(function).items()}
        for function in subject.nodes[second].functions:
            for key, value in surely(function).items():
                channel = subject.channels.get(key)
                if channel is None or channel.reducer is not operator.or_ or key not in ours:
                    continue
                for name in sorted(_literal_keys(ours[key]) & _literal_keys(value)):
                    yield Found(f"channel {key}", function.at(value), f"nodes {first} and {second} both write {name!r}.")


def mutating_reducer(subject: Subject) -> Iterator[Found]:
    """A reducer changes its first argument in place.

    That argument is the value that readers, streams and the caller already hold: what was handed out as the state of an
    earlier step changes behind their backs. The rule sees mutating methods, item assignments and `+=` on the first parameter.
    """
    for channel in subject.channels.values():
        function = subject.sources.function(channel.reducer) if channel.reducer else None
        if function is None or not function.parameters:
            continue
        old = function.parameters[0]
        if any(is_name(target, old) for node in function.nodes if isinstance(node, ast.Assign) for target in node.targets):
            continue  # the name means a copy
        for node in function.nodes:
            if _mutates(node, lambda part, old=old: is_name(part, old)):
                yield Found(f"channel {channel.name}", function.at(node), f"its reducer {function.name} changes the old value.")


def order_matters(subject: Subject) -> Iterator[Found]:
    """A number's reducer gives another result when the same updates come in another order, and parallel nodes write it.

    Several updates of one step are folded one after the other, in the order of the nodes' names: renaming a node changes the
    result, and an average of averages is none. The rule computes reducers that consist of arithmetic on their two parameters
    and the functions sub, truediv, floordiv, mod and pow of `operator`; others are not looked into.
    """
    together = {key for pair in subject.together for key in _written(subject, pair[0]) & _written(subject, pair[1])}
    together |= {key for name in subject.sent for key in _written(subject, name)}
    for channel in subject.channels.values():
        apply = _arithmetic(subject, channel.reducer) if channel.name in together else None
        if apply is None:
            continue
        try:
            uneven = any(
                abs(apply(apply(a, b), c) - apply(apply(a, c), b)) > 1e-6 for a, b, c in ((2.0, 3.0, 7.0), (5.0, 2.0, 3.0))
            )
            grouped = any(
                abs(apply(apply(a, b), c) - apply(a, apply(b, c))) > 1e-6 for a, b, c in ((2.0, 3.0, 7.0), (5.0, 2.0, 3.0))
            )
        except (ArithmeticError, TypeError):
            continue
        if uneven or grouped:
            yield Found(f"channel {channel.name}", channel.spot, "its reducer depends on the order or grouping of the updates.")


def picked_by_place(subject: Subject) -> Iterator[Found]:
    """A node takes an item by its place out of a list that parallel nodes fill.

    The order of a fan-in is the order of the nodes' names, not that of the edges or of who finished first. A new branch, or a
    renamed node, puts something else at that place. Items must say what they are. The rule sees `state["x"][0]` and nodes that
    fixed edges start together.
    """
    filled = {
        key
        for pair in subject.together
        for key in _written(subject, pair[0]) & _written(subject, pair[1])
        if key in subject.channels and subject.channels[key].reducer is operator.add and subject.channels[key].type is list
    }
    for node in subject.nodes.values():
        for function in node.functions:
            for part in function.nodes:
                if not isinstance(part, ast.Subscript) or not isinstance(part.slice, ast.Constant):
                    continue
                key = key_of(part.value, function.state)
                if key in filled and isinstance(part.slice.value, int):
                    yield Found(f"node {node.name}", function.at(part), f"takes {key}[{part.slice.value}] of a parallel fan-in.")


def counter_through_add(subject: Subject) -> Iterator[Found]:
    """A node returns "what I read, plus one" for a number whose reducer is `operator.add`.

    The reducer adds the returned number to the old one, so the counter doubles instead of growing by one. The rule sees
    `state["n"] + ...` and `state.get("n", 0) + ...`.
    """
    for node, function, key, value in _writes(subject):
        channel = subject.channels.get(key)
        built = function.meant(value)
        if channel is None or channel.reducer is not operator.add or channel.type not in (int, float):
            continue
        if not isinstance(built, ast.BinOp) or not isinstance(built.op, ast.Add):
            continue
        if key in (key_of(built.left, function.state), key_of(built.right, function.state)):
            yield Found(f"node {node.name}", function.at(value), f"returns {key} plus something; the reducer adds it again.")


def whole_state(subject: Subject) -> Iterator[Found]:
    """A node returns the whole state, and at least one key appends what is returned.

    Every list with `operator.add` doubles although the node did not touch it. A node returns the keys that it changed; all
    others keep their values. The rule sees `return state`, a spread state, and copies of it.
    """
    adding = {name for name, channel in subject.channels.items() if channel.reducer is operator.add}
    for node in subject.nodes.values():
        for function in node.functions:
            for update in updates(function):
                given = getattr(node.input_schema, "__annotations__", adding)
                doubled = sorted(name for name in adding - set(update.keys) if name in given)
                if update.whole and doubled:
                    yield Found(f"node {node.name}", function.at(update.node), f"returns the whole state: {doubled[0]} doubles.")


def mutated_input(subject: Subject) -> Iterator[Found]:
    """A node changes the state that it was given, and does not return the changed key.

    The change is no update: it is not in the checkpoint, and a resumed or reopened conversation does not have it. The rule
    sees mutating methods and assignments on `state["x"]`, in nodes all of whose updates can be read.
    """
    for node in subject.nodes.values():
        for function in node.functions:
            returned = updates(function)
            if function.state in function.locals or any(one.whole or not one.known for one in returned):
                continue
            written = {key for one in returned for key in one.keys}
            for part in function.nodes:
                for key in _changed(part, function.state):
                    channel = subject.channels.get(key)
                    if channel is not None and channel.type in (list, dict, set) and key not in written:
                        yield Found(f"node {node.name}", function.at(part), f"changes {key} in place and does not return it.")


def raw_messages(subject: Subject) -> Iterator[Found]:
    """A node returns a message as a dict, a tuple or a string, and the reducer does not make messages of them.

    `add_messages` turns them into message objects; `operator.add` keeps them as they are, and the next `.content` fails. The
    rule sees literals in the returned list, in keys declared as lists of messages.
    """
    for node, function, key, value in _writes(subject):
        channel = subject.channels.get(key)
        if channel is None or channel.reducer is not operator.add or not _of_messages(channel):
            continue
        literal = function.meant(value)
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
    for name, said in _histories(subject):
        copies = sum(
            len(new) >= 3 and new[:2] == old[:2] and "ai" in {kind for kind, _ in new}
            for old, new in ((before, after[len(before) :]) for before, after in itertools.pairwise(said))
        )
        if copies:
            spot = subject.channels[name].spot if name in subject.channels else None
            yield Found(f"channel {name}", spot, f"its {len(said[-1])} messages hold their own beginning {copies + 1} times.")


def _histories(subject: Subject) -> Iterator[tuple[str, list[list[tuple[str, str]]]]]:
    """Each channel of messages, with what was said in each checkpoint that holds more than nothing."""
    steps = subject.thread.steps if subject.thread else ()
    for name in steps[-1].values if steps else ():
        values = [step.values[name] for step in steps if name in step.values]
        if all(isinstance(value, list) and all(hasattr(one, "content") for one in value) for value in values):
            yield name, [[(one.type, str(one.content)) for one in value] for value in values if len(value) > 1]


def _writes(subject: Subject) -> Iterator[tuple[Node, Function, str, ast.expr]]:
    for node in subject.nodes.values():
        for function in node.functions:
            for update in updates(function):
                for key, value in update.keys.items():
                    yield node, function, key, value


def _written(subject: Subject, node: str) -> set[str]:
    """The keys that a node writes for sure."""
    return {key for function in subject.nodes[node].functions for key in surely(function)}


def _of_messages(channel: Channel) -> bool:
    from langchain_core.messages import AnyMessage, BaseMessage

    if channel.type is not list or not channel.items:
        return False
    item = channel.items[0]
    return item is AnyMessage or (isinstance(item, type) and issubclass(item, BaseMessage))


def _literal_keys(node: ast.expr) -> set[str]:
    if not isinstance(node, ast.Dict):
        return set()
    return {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _mutates(node: ast.AST, target: Any) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
        return bool(target(node.func.value))
    if isinstance(node, ast.AugAssign):
        return bool(target(node.target.value if isinstance(node.target, ast.Subscript) else node.target))
    if isinstance(node, ast.Assign):
        return any(isinstance(one, ast.Subscript) and target(one.value) for one in node.targets)
    return False


def _changed(node: ast.AST, state: str | None) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
        key = key_of(node.func.value, state) if isinstance(node.func.value, ast.Subscript) else None
        if key:
            yield key
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    for target in targets:
        key = key_of(target, state) if isinstance(target, ast.Subscript) else None
        if key:
            yield key


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
