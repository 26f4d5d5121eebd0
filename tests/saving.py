"""A process of its own that makes a saver's tables and writes a checkpoint: `python saving.py URL CHECKPOINTS THREAD`.

It prints `ready`, waits for a line, writes, and prints what it found then.
"""

from __future__ import annotations

import sys


def main() -> None:
    from abreast import Abreast
    from planner import declare
    from steps import steps

    url, checkpoints, thread = sys.argv[1:]
    hub = declare(Abreast(url))
    graph = steps(hub.checkpointer(checkpoints))
    with hub.lease(thread) as held:
        print("ready", flush=True)
        sys.stdin.readline()
        graph.invoke({"said": ["go"]}, held.config, durability="sync")
        print(len(list(graph.get_state_history(held.config))), flush=True)
    hub.blocking.close()


if __name__ == "__main__":
    main()
