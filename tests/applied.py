"""A program that applies governed writes: `url, start, number`. The same mutation ids come in the same order as in every
other run of it; it says how each was answered, as one line of JSON."""

from __future__ import annotations

import json
import sys

from abreast import Abreast, RereadError, agent, insert, update
from planner import Item, Plan, declare


def main() -> None:
    url, kind, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    hub = declare(Abreast(url))
    print("ready", flush=True)
    sys.stdin.readline()
    answers = []
    for index in range(number):
        # Every third intention is a new row, every third an update, every third an update that comes too late.
        if kind == "forever":
            change = update(Plan, "p1", title=f"title {index}")
        elif index % 3 == 0:
            change = insert(Item, id=1000 + index, plan_id="p1", title=f"item {index}")
        else:
            change = update(Plan, "p1", title=f"title {index}", version=None if index % 3 == 1 else 1)
        try:
            applied = hub.blocking.apply("w1", change, actor=agent("helper"), thread="t1", mutation=f"m{index}")
            (row,) = applied.rows
            answers.append(["applied", applied.revision, row.entity_id, row.version, dict(row.values)])
        except RereadError as error:
            answers.append(["conflict", error.version, dict(error.row.values)])
        if kind == "forever":
            print(index, flush=True)
    print(json.dumps(answers, sort_keys=True), flush=True)
    hub.blocking.close()


main()
