"""What is said to be gone and is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from abreast.doctor.bindings import says
from abreast.doctor.rule import Found, Rule
from abreast.doctor.runs import Scope, scopes
from abreast.doctor.sources import FunctionTree, Source
from abreast.doctor.subject import Subject

SAVERS = frozenset(("InMemorySaver", "SqliteSaver", "AsyncSqliteSaver", "PostgresSaver", "AsyncPostgresSaver"))
"""Savers that keep every checkpoint until its thread is deleted."""

NAMED = re.compile(
    r"^_?(?:(?:erase|forget|purge|wipe|delete|remove)_(?:\w+_)?(?:account|person|customer|patient|(?:personal|user|customer)_data)"
    r"|(?:erase|forget|purge|wipe|delete)_user|\w*gdpr\w*|\w*right_to_be_forgotten)$"
)
SAID = re.compile(r"\bGDPR\b|right to (?:be forgotten|erasure)|eras\w+ (?:all )?(?:of )?(?:\w+ )?personal data", re.IGNORECASE)
DELETES = ("delete_thread", "delete from", "DELETE FROM", "drop table", "DROP TABLE", ".unlink(", "prune", "rmtree")


def removal_taken_for_erasure(subject: Subject) -> Iterator[Found]:
    """What is to erase a person's data only removes messages from the state.

    RemoveMessage makes a new checkpoint without the message. The older ones keep its text, in the history and in the database,
    until the thread is deleted. The rule sees functions whose name or docstring says that they erase (`erase_account`,
    `delete_user`, "personal data", "GDPR") and that make a RemoveMessage: nodes of a graph with one of LangGraph's savers, and
    callers of its `update_state`. It is silent where a file says `delete_thread` or deletes in another way.
    """
    if type(subject.checkpointer).__name__ not in SAVERS or says(subject, (), DELETES):
        return
    nodes = {id(function.tree): f"node {node.name}" for node in subject.nodes.values() for function in node.functions}
    for source in subject.sources:
        for scope in scopes(source) if any("RemoveMessage" in line for line in source.lines) else ():
            tree = scope.functions[-1] if scope.functions else None
            if tree is None or not _erases(tree):
                continue
            place = nodes.get(id(tree)) or ("graph" if _updates(scope, subject.graph) else None)
            for call in _removals(source, scope) if place else ():
                yield Found(str(place), source.spot(call), "older checkpoints keep what is removed here.")
                break


def _erases(tree: FunctionTree) -> bool:
    if isinstance(tree, ast.Lambda):
        return False
    return bool(NAMED.search(tree.name) or SAID.search(ast.get_docstring(tree) or ""))


def _updates(scope: Scope, graph: object) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("update_state", "aupdate_state")
        and scope.resolve(node.func.value) is graph
        for node in scope.nodes
    )


def _removals(source: Source, scope: Scope) -> Iterator[ast.Call]:
    from langchain_core.messages import RemoveMessage

    for node in scope.nodes:
        if isinstance(node, ast.Call) and source.resolve(node.func) is RemoveMessage:
            yield node


RULES: tuple[Rule, ...] = (
    Rule(
        "AB506",
        "Removing messages taken for erasure",
        removal_taken_for_erasure,
        "Delete the thread: checkpointer.delete_thread(thread_id), for each thread of the person.",
    ),
)
