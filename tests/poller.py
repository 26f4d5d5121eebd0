"""A program that polls the log of each workspace, as a reader with a cursor does.

`python poller.py URL PLACES LIMIT`: starts behind PLACES (JSON, workspace to revision) and reads at most LIMIT events at
once. It prints `ready` and then polls once for every line `poll` that it gets. Any other line says, as JSON, to where it
must come; it goes there and prints what it has seen. It writes down everything that a reader must never see.
"""

from __future__ import annotations

import json
import sys

from abreast import Abreast
from house import declare


class Poller:
    def __init__(self, hub: Abreast, place: dict[str, int], limit: int) -> None:
        self.hub, self.place, self.limit = hub, place, limit
        self.wrong: list[str] = []
        self.polls = 0
        self._titles: dict[str, str] = {}

    def poll(self, workspace: str) -> int:
        """Reads once; returns how many revisions it was behind before it read."""
        place = self.place[workspace]
        batch = self.hub.blocking.batch(workspace, after=place, limit=self.limit)
        self.polls += 1
        revisions = [event.revision for event in batch.events]
        if revisions != list(range(place + 1, batch.to.revision + 1)):
            self.wrong.append(f"{workspace} behind {place}: {revisions}, to {batch.to.revision}")
        if batch.to.revision + batch.remaining != batch.head.revision:
            self.wrong.append(f"{workspace}: {batch.to.revision} and {batch.remaining} are not {batch.head.revision}")
        for event in batch.events:
            if event.entity_type == "plan" and "title" in event.values:
                self._titles[event.entity_id] = event.values["title"][1]
        if batch.remaining == 0:
            # At HEAD, what the events say is what the rows of the same batch are.
            for row in batch.rows:
                said = self._titles.get(row.entity_id, row.values["title"])
                if row.entity_type == "plan" and said != row.values["title"]:
                    self.wrong.append(f"{row.entity_id} is {row.values['title']!r}, the events say {said!r}")
        self.place[workspace] = batch.to.revision
        return batch.head.revision - place


def main() -> None:
    url, places, limit = sys.argv[1:]
    hub = declare(Abreast(url))
    poller = Poller(hub, json.loads(places), int(limit))
    print("ready", flush=True)
    while (line := sys.stdin.readline().strip()) == "poll":
        for workspace in poller.place:
            poller.poll(workspace)
    for workspace, goal in json.loads(line).items():
        while poller.place[workspace] < goal and poller.poll(workspace):
            pass
    print(json.dumps({"wrong": poller.wrong, "places": poller.place, "polls": poller.polls}), flush=True)
    hub.blocking.close()


if __name__ == "__main__":
    main()
