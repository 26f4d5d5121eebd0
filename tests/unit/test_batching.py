"""Governed writes of one workspace that wait for each other (G17, G18): who goes with whom, and when the next ones go."""

from __future__ import annotations

import asyncio

import pytest

from abreast.access.batching import FEW, GROUP, AsyncLines, Job
from abreast.store.mutations import Outcome


def job(number, mutation=None):
    return Job("w1", mutation, lambda: None, call=str(number))


class Journal:
    """Stands where the database does, and notes what is sent to it and when somebody has read an answer."""

    def __init__(self, lines=AsyncLines):
        self.open, self.noted = asyncio.Event(), []
        self.lines = lines(self.alone, self.together)

    async def alone(self, job):
        await self.open.wait()
        return Outcome("rows", body=job.call)

    async def together(self, jobs):
        self.noted.append(("sent", [job.call for job in jobs]))
        await asyncio.sleep(0)
        return lambda: [Outcome("rows", body=job.call) for job in jobs]

    async def write(self, number, mutation=None):
        outcome = await self.lines.submit(job(number, mutation))
        self.noted.append(("read", outcome.body))

    async def all_of(self, writes):
        tasks = [asyncio.create_task(write) for write in writes]
        await asyncio.sleep(0)
        self.open.set()
        await asyncio.gather(*tasks)
        return self.noted


def test_g18_each_gets_its_own_answer_and_no_group_is_too_large():
    async def main():
        journal = Journal()
        return await journal.all_of(journal.write(number) for number in range(3 * GROUP))

    noted = asyncio.run(main())
    assert sorted(int(what) for kind, what in noted if kind == "read") == list(range(3 * GROUP))
    sent = [calls for kind, calls in noted if kind == "sent"]
    assert sorted(int(call) for calls in sent for call in calls) == list(range(1, 3 * GROUP))
    assert max(map(len, sent)) <= GROUP


def test_g18_the_next_group_is_sent_before_the_answers_of_the_last_are_read():
    async def main():
        journal = Journal()
        return await journal.all_of(journal.write(number) for number in range(8 * FEW))

    noted = asyncio.run(main())
    sent = [place for place, (kind, _) in enumerate(noted) if kind == "sent"]
    reads = {what: place for place, (kind, what) in enumerate(noted) if kind == "read"}
    first = [reads[call] for call in noted[sent[0]][1]]
    assert sent[1] < min(first)


def test_g18_few_wait_for_those_that_read_so_that_these_can_join():
    """Whoever was answered has its next write ready at once: all of a few go together again and again."""

    async def main():
        journal = Journal()

        async def producer(number):
            for _ in range(4):
                await journal.write(number)

        return await journal.all_of(producer(number) for number in range(FEW - 2))

    noted = asyncio.run(main())
    sizes = [len(calls) for kind, calls in noted if kind == "sent"]
    assert sizes[1:3] == [FEW - 2, FEW - 2]


@pytest.mark.parametrize("number", [2, 20])
def test_g18_two_of_one_mutation_never_go_together(number):
    async def main():
        journal = Journal()
        return await journal.all_of(journal.write(one, f"m{one // 2}") for one in range(2 * number + 1))

    noted = asyncio.run(main())
    for kind, calls in noted:
        if kind == "sent":
            mutations = [int(call) // 2 for call in calls]
            assert len(set(mutations)) == len(mutations)
    assert len([kind for kind, _ in noted if kind == "read"]) == 2 * number + 1


def test_g18_who_waits_behind_one_that_hangs_has_its_turn_in_the_end():
    async def main():
        journal = Journal()
        first = asyncio.create_task(journal.write(0))
        await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*(journal.write(number) for number in (1, 2, 3))), 30)
        assert not first.done()
        journal.open.set()
        await first
        return journal.noted

    noted = asyncio.run(main())
    assert noted[0] == ("sent", ["1", "2", "3"])
    assert [what for kind, what in noted if kind == "read"] == ["1", "2", "3", "0"]
