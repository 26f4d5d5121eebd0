"""A graph of 200 nodes of 40 lines each is looked at in under 2 seconds and 200 megabytes, whatever its shape."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from abreast.doctor import examine
from doctor_programs import program

NODES = 200


def written(path: Path) -> Path:
    """A file with the nodes' functions."""
    lines = ["import operator", "from typing import Annotated, TypedDict", "", "class State(TypedDict):"]
    lines += ["    log: Annotated[list[str], operator.add]"]
    lines += [f"    key_{number}: str" for number in range(NODES)]
    for number in range(NODES):
        lines += ["", f"def node_{number}(state: State) -> dict:", f"    value = state.get('key_{number}', '')"]
        for line in range(12):
            lines += [f"    value_{line} = value + str(len(state['log'])) if value else '{line}'"]
            lines += ["    for one in state['log']:", f"        value = one.upper() + value_{line}"]
        lines += [f"    return {{'key_{number}': value, 'log': [value]}}"]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def edges(shape: str, number: int) -> list[tuple[str, str]]:
    if shape == "fan-out":
        return [(START, f"n{number}")]
    if shape == "chain":
        return [(f"n{number - 1}" if number else START, f"n{number}")]
    dense = [(f"n{number}", f"n{(number + step) % NODES}") for step in range(1, 11)]
    return dense if number else [(START, "n0"), *dense]


def built(module: ModuleType, shape: str) -> Any:
    builder = StateGraph(module.State)
    for number in range(NODES):
        builder.add_node(f"n{number}", getattr(module, f"node_{number}"))
    for number in range(NODES):
        for start, end in edges(shape, number):
            builder.add_edge(start, end)
    return builder.compile()


@pytest.mark.parametrize("shape", ["fan-out", "chain", "dense"])
def test_200_long_nodes(shape: str, tmp_path: Path):
    with program(written(tmp_path / "large.py")) as module:
        graph = built(module, shape)
        # The quickest of three: what else the machine does makes even the time of one's own processor longer.
        taken = []
        for _ in range(3):
            started = time.process_time()
            assert examine(graph, module=module.__name__).findings == ()
            taken.append(time.process_time() - started)
            if taken[-1] < 2:
                return
        assert min(taken) < 2


def test_the_memory_of_200_long_nodes(tmp_path: Path):
    with program(written(tmp_path / "large.py")) as module:
        graph = built(module, "fan-out")
        tracemalloc.start()
        examine(graph, module=module.__name__)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200_000_000
