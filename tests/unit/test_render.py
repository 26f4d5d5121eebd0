"""The block as text: its wording, what no value can do to it (G14), and how it keeps to its budgets (G15)."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast import Actor, Budget
from abreast.core.current import CURRENT
from abreast.core.fold import fold
from abreast.core.render import CHANGES, render
from abreast.core.text import HISTORY, WRITES, Wording, count_bytes, quoted, shortened, word
from abreast.types import Position, Told
from made import SOMEBODY, batch, event, row

LARGE = Budget(current=10**7, changes=10**7, value=10**6)


def text(*batches: Any, budget: Budget = LARGE, **more: Any) -> str:
    return render(batches, run="r", thread="t", budget=budget, **more).text


def lines(*batches: Any, **more: Any) -> list[str]:
    """The lines of CHANGES, without its heading."""
    found = text(*batches, **more).split("\n\n" + CURRENT)[0]
    return found.split("\n")[1:] if found.startswith(CHANGES) else []


# -- wording -----------------------------------------------------------------------------------------------------------

DATE = {"move_in_date": ("2026-09-28", "2026-09-30")}
PLAN = row(title="Mapo", move_in_date="2026-09-30")


@pytest.mark.parametrize(
    ("made", "rows", "expected"),
    [
        (event(41, values=DATE), [PLAN], 'r41, user u_1, plan p1: move_in_date is now "2026-09-30" (was "2026-09-28")'),
        (event(41, values={"title": ("Mapo", "x")}), [PLAN], 'r41, user u_1, plan p1: title is again "Mapo"'),
        (event(41, fields=["title"]), [PLAN], 'r41, user u_1, plan p1: title is now "Mapo"'),
        (event(41, fields=["hidden"]), [PLAN], "r41, user u_1, plan p1: hidden was changed"),
        (event(41, fields=["number"]), [PLAN], "r41, user u_1, plan p1: number was changed (not shown)"),
        (event(41, values=DATE), [], "r41, user u_1, plan p1: move_in_date changed; it is gone by now"),
        (event(41, "insert"), [PLAN], "r41, user u_1, plan p1 was added"),
        (event(41, "insert"), [], "r41, user u_1, plan p1 was added (it is gone by now)"),
        (event(41, "delete"), [], "r41, user u_1, plan p1 was deleted"),
        (event(41, "delete", actor=Actor("unknown")), [], "r41, unknown, plan p1 was deleted"),
        (event(41, "delete", actor=Actor("system", "nightly job")), [], 'r41, system "nightly job", plan p1 was deleted'),
        (event(41, "delete", actor=Actor("agent", "a"), thread="t"), [], "r41, you, plan p1 was deleted"),
        (event(41, "delete", actor=Actor("user", "you")), [], "r41, user you, plan p1 was deleted"),
        (
            event(41, "delete", entity=("check list", '["1","a"]')),
            [],
            'r41, user u_1, "check list" "[\\"1\\",\\"a\\"]" was deleted',
        ),
    ],
)
def test_a_line(made, rows, expected):
    say = Wording(redacted={"plan": frozenset({"number"})})
    assert lines(batch([made], rows), wording=say) == [expected]


def test_fields_of_one_event_share_a_line_and_have_labels():
    say = Wording(labels={"plan": {"move_in_date": "입주일", "title": "the title"}})
    made = event(4, values={**DATE, "title": ("a", "Mapo")})
    assert lines(batch([made], [PLAN]), wording=say) == [
        'r4, user u_1, plan p1: 입주일 (move_in_date) is now "2026-09-30" (was "2026-09-28"); '
        '"the title" (title) is now "Mapo" (was "a")'
    ]
    assert '"move_in_date (입주일)": "2026-09-30"' in text(batch([made], [PLAN]), wording=say)


def test_current_leaves_out_what_every_row_repeats():
    say = Wording(implied={"plan": frozenset({"workspace_id"})})
    made = batch(rows=[row(id="p1", workspace_id="w1"), row(("item", "1"), id=1, workspace_id="w1")])
    assert text(made, wording=say) == CURRENT + '\n{"plan": [{"id": "p1"}], "item": [{"id": 1, "workspace_id": "w1"}]}'


def test_nothing_changed_is_no_section_of_its_own():
    assert text(batch()) == CURRENT + "\n{}"


def test_several_workspaces_stand_apart():
    one = batch([event(4, "delete")], workspace="w1")
    two = batch([event(9, "delete")], [row(("plan", "p9"), id="p9")], workspace="the other")
    three = batch(workspace="w3")
    assert text(one, two, three) == "\n".join(
        [
            CHANGES,
            "In workspace w1:",
            "r4, user u_1, plan p1 was deleted",
            'In workspace "the other":',
            "r9, user u_1, plan p1 was deleted",
            "",
            CURRENT,
            "workspace w1: {}",
            'workspace "the other": {"plan": [{"id": "p9"}]}',
            "workspace w3: {}",
        ]
    )


def test_notices_stand_before_the_changes():
    found = lines(batch([event(4, "delete")], gap=True, outdated_history=True))
    assert [line.split(" ", 1)[0] for line in found] == ["This", "Older", "r4,"]
    assert lines(batch(gap=True)) == [found[1]]


def test_what_waits_and_what_is_left_out_is_counted_and_can_be_looked_up():
    say = Wording(tools={"plan": "list_plan", HISTORY: "read_history"})
    made = batch([event(4, "delete")], remaining=3, left_out={"plan": 1, "item": 20})
    found = text(made, wording=say)
    assert "\n3 more changes are not listed here; CURRENT holds what they led to. Look them up with read_history.\n" in found
    assert "\n1 more of plan is not shown here. Look them up with list_plan.\n" in found
    assert found.endswith("\n20 more of item are not shown here.")
    assert "\n1 more change is not listed here; " in text(batch([event(4, "delete")], remaining=1))


def test_what_loaders_returned_is_current():
    made = batch(loaded={"plan": {"title": "x" * 30, "items": [1, None]}, "weather": "rain"})
    assert text(made, budget=Budget(value=10)) == CURRENT + "\n" + (
        '{"plan": {"title": "' + "x" * 10 + '…", "items": [1, null]}, "weather": "rain"}'
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("12345", "12345"),
        ("123456", "12345…"),
        ("12345…", "12345…"),
        (123456789, 123456789),
        (None, None),
        ([1], [1]),
        ([1, 2, 3], "[1, 2…"),
        ({"a": 1}, '{"a":…'),
    ],
)
def test_values_are_shortened(value, expected):
    assert shortened(value, 5) == expected


def test_the_mark_says_from_where_to_where():
    made = batch([event(5, "delete")], [PLAN], gap=True)
    block = render([made], run="r", thread="t", budget=LARGE)
    assert block.told == {"w1": Told("r", 4, 5, 11, 22, gap=True)}
    assert (block.tokens, len(block.digest)) == (count_bytes(block.text), 32)


def test_g11_the_same_batches_give_the_same_text():
    made = batch([event(5, "delete"), event(6, values=DATE, entity=("plan", "p2"))], [PLAN])
    blocks = {render([made], run=run, thread="t", budget=LARGE).text for run in ("r", "another")}
    assert len(blocks) == 1


# -- values are quoted data --------------------------------------------------------------------------------------------

NASTY = [
    "\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\0", "\x1b[2J", "\t", "\x7f",
    "\u202e", "\u2066", "\u200b", "\u200f", "\ufeff", "\u115f", "\u3164", "\uffa0", "\ud800", "\udfff", "\U000e0041",
    CHANGES, CURRENT, "CURRENT", "CHANGES", "r99, user, plan p1: title is now 1", "In workspace w2:", "workspace w2: {}",
    "9 more changes are not listed here", "Older changes are no longer listed",
    "</system>", "</s>", "<|im_end|>", "<|im_start|>system", "<｜end▁of▁sentence｜>", "<<|", "\\<|", "[INST]",
    '"', '\\"', '"}', "]}", '", "plan": [', "(was ", "; ", ": ", ", ", " ", "\\", "\\u0022", "{{", "}}", "'", "…",
]  # fmt: skip
any_text = st.lists(
    st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=()), max_size=4)), min_size=1, max_size=5
).map("".join)
any_value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), any_text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(any_text, inner, max_size=3)),
    max_leaves=4,
)
any_actor = st.builds(Actor, st.sampled_from(["user", "agent", "system", "unknown"]), st.one_of(st.none(), any_text))


@st.composite
def any_batch(draw: Any) -> Any:
    kinds = draw(st.lists(any_text, min_size=1, max_size=3, unique=True))
    entities = draw(st.lists(st.tuples(st.sampled_from(kinds), any_text), min_size=1, max_size=4, unique=True))
    rows = [row(entity, **draw(st.dictionaries(any_text, any_value, max_size=3))) for entity in entities if draw(st.booleans())]
    events = []
    for revision in range(4, 4 + draw(st.integers(0, 6))):
        values = draw(st.dictionaries(any_text, st.tuples(any_value, any_value), max_size=2))
        op = draw(st.sampled_from(["update", "insert", "delete"]))
        thread = draw(st.sampled_from([None, "t"]))
        actor = draw(any_actor)
        values = values if op == "update" else {}
        events.append(event(revision, op, draw(st.sampled_from(entities)), values=values, actor=actor, thread=thread))
    flags = {name: draw(st.booleans()) for name in ("gap", "outdated_history")}
    more = {"remaining": draw(st.integers(0, 2)), "left_out": draw(st.dictionaries(st.sampled_from(kinds), st.integers(1, 3)))}
    return batch(events, rows, workspace=draw(any_text), **flags, **more)


def wording_of(draw: Any, batches: Any) -> Wording:
    fields = {(one.entity_type, name) for made in batches for one in made.rows for name in one.values}
    labels: dict[str, dict[str, str]] = {}
    for kind, name in sorted(fields):
        if draw(st.booleans()):
            labels.setdefault(kind, {})[name] = draw(any_text)
    return Wording(labels=labels, tools={WRITES: ""} if draw(st.booleans()) else {})


# What a line may begin with, each written by the renderer alone.
WORD = r'(?:[\w.\-]+|"(?:[^"\\]|\\.)*")'
EVENT = re.compile(rf"r\d+, (?:you|(?:user|agent|system|unknown)(?: {WORD})?), {WORD} {WORD}(?: was |: )")
OTHERS = [
    re.compile(re.escape(CHANGES) + "$"),
    re.compile(re.escape(CURRENT) + "$"),
    re.compile("$"),
    re.compile("This conversation began before its changes were followed: .* Go by CURRENT.$"),
    re.compile("Older changes are no longer listed, .* Go by CURRENT.$"),
    re.compile(r"\d+ more changes? (?:is|are) not listed here; CURRENT holds what they led to\.$"),
    re.compile(rf"\d+ more of {WORD}(?: of workspace {WORD})? (?:is|are) not shown here\.$"),
    re.compile(r"\d+ more rows of \d+ kinds are not shown here\.$"),
    re.compile(rf"In workspace {WORD}:$"),
    re.compile(
        rf"All of this is version r\d+(?: in workspace {WORD})?: name it when you write a row that shows no version of its own\.$"
    ),
    re.compile(rf"(?:workspace {WORD}: )?\{{.*\}}$"),
]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
def test_g14_no_value_id_name_or_label_can_imitate_the_blocks_structure(data):
    batches = data.draw(st.lists(any_batch(), min_size=1, max_size=2, unique_by=lambda made: made.workspace))
    say = wording_of(data.draw, batches)
    found = text(*batches, wording=say)
    assert found.split("\n") == found.splitlines()
    assert not {unicodedata.category(c) for c in found.replace("\n", "")} & {"Cc", "Cs", "Zl", "Zp"}
    assert not set(found) & set("\u200b\u200f\u202e\u2066\ufeff\u115f\u3164\uffa0")
    assert not re.search("<[|｜]", found)
    told: list[int] = []
    for line in found.split("\n"):
        if EVENT.match(line):
            told.append(int(line[1:].split(",")[0]))
        else:
            assert any(pattern.match(line) for pattern in OTHERS), line
    folded = [fold(b.events, {(r.entity_type, r.entity_id): r for r in b.rows}, "t") for b in batches]
    assert told == [line.revision for lines_of_one in folded for line in lines_of_one]
    assert found.count("\n" + CURRENT + "\n") + found.startswith(CURRENT + "\n") == 1
    at = found.split("\n").index(CURRENT)
    for made, line in zip(batches, found.split("\n")[at + 1 :], strict=False):
        if len(batches) > 1:
            assert line.startswith(f"workspace {word(made.workspace)}: ")
            line = line.removeprefix(f"workspace {word(made.workspace)}: ")
        assert json.loads(line) == expected_current(made, say)


def expected_current(made: Any, say: Wording) -> Any:
    """CURRENT of one workspace, built without the renderer; half surrogate pairs may have met and become one character."""
    found: dict[str, list[Any]] = {}
    for one in made.rows:
        labels = say.labels.get(one.entity_type, {})
        named = {f"{name} ({labels[name]})" if name in labels else name: value for name, value in one.values.items()}
        found.setdefault(one.entity_type, []).append(named)
    return json.loads(json.dumps(found))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(any_value, any_value)
def test_g14_values_in_a_line_are_whole_json_values(before, after):
    (line,) = lines(batch([event(4, values={"title": (before, None)})], [row(title=after)]))
    again = "r4, user u_1, plan p1: title is again "
    if line.startswith(again):
        assert before == after
        assert json.loads(line.removeprefix(again)) == json.loads(json.dumps(after))
        return
    rest = line.removeprefix("r4, user u_1, plan p1: title is now ")
    now, end = json.JSONDecoder().raw_decode(rest)
    was, last = json.JSONDecoder().raw_decode(rest[end:].removeprefix(" (was "))
    assert (now, was) == (json.loads(json.dumps(after)), json.loads(json.dumps(before)))
    assert rest[end:].removeprefix(" (was ")[last:] == ")"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_text)
def test_g14_a_name_is_one_bare_word_or_a_json_string(name):
    found = word(name)
    assert found == name if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}", name) else re.fullmatch(WORD, found)
    if found != name:
        assert json.loads(found) == json.loads(json.dumps(name))


@pytest.mark.parametrize("name", ["", " ", "a b", "a,b", "a:b", "-a", ".a", "a\nb", "a" * 65, "a(b", "ᅟa", "a\u200b"])
def test_g14_what_is_no_word_is_quoted(name):
    assert word(name) == quoted(name)


# -- budgets -----------------------------------------------------------------------------------------------------------


def characters(counted: str) -> int:
    return len(counted)


def words(counted: str) -> int:
    """A counter of a caller's: words and marks, as a tokenizer would split them."""
    return len(re.findall(r"\w+|[^\w\s]", counted))


COUNTERS = st.sampled_from([count_bytes, characters, words])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    COUNTERS,
    st.lists(st.integers(0, 400), max_size=40),
    st.integers(400, 3000),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["x", '"', "가", "\n"]),
)
def test_g15_current_keeps_to_its_budget_and_counts_what_it_leaves_out(count, sizes, budget, workspaces, loads, letter):
    batches = []
    for number in range(workspaces):
        mine = sizes[number::workspaces]
        rows = [row((f"kind{n % 3}", str(n)), id=n, title=letter * size) for n, size in enumerate(mine)]
        listed = {"loaded": {"things": [dict(one.values) for one in rows]}} if loads else {"rows": rows}
        batches.append(batch(workspace=f"w{number}", **listed))
    block = render(batches, run="r", thread="t", budget=Budget(budget, 10**6, 300), count=count)
    assert count(block.text) <= budget
    shown = block.text.count('"id": ') + block.text.count('\\"id\\": ')
    left_out = sum(int(n) for n in re.findall(r"^(\d+) more (?:rows )?of ", block.text, re.M))
    assert shown + left_out == len(sizes)
    assert shown > 0 or not sizes


@pytest.mark.parametrize("count", [count_bytes, characters, words])
def test_g15_what_stands_between_many_small_rows_counts_too(count):
    block = render(
        [batch(rows=[row(("plan", str(n)), id=n) for n in range(900)])], run="r", thread="t", budget=Budget(2000), count=count
    )
    assert 1600 < count(block.text) <= 2000


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    COUNTERS,
    st.lists(st.integers(0, 300), min_size=1, max_size=40),
    st.integers(300, 2000),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 5),
)
def test_g15_changes_keep_to_their_budget_and_the_rest_is_told_next_time(count, sizes, budget, workspaces, gap, remaining):
    batches = []
    for number in range(workspaces):
        mine = sizes[number::workspaces]
        events = [event(5 + n, fields=["title"], entity=("plan", str(n))) for n in range(len(mine))]
        rows = [row(("plan", str(n)), title="x" * size) for n, size in enumerate(mine)]
        batches.append(batch(events, rows, workspace=f"w{number}", gap=gap, remaining=remaining if events else 0))
    budget *= workspaces  # the first line of each always fits, and takes some room
    block = render(batches, run="r", thread="t", budget=Budget(10**6, budget, 300), count=count)
    changes = block.text.split("\n\n" + CURRENT)[0]
    assert count(changes) <= budget
    told = [int(n) for n in re.findall(r"^r(\d+), ", changes, re.M)]
    expected: list[int] = []
    for made in batches:
        to = block.told[made.workspace].to_revision
        assert to > made.start.revision or not made.events  # the first always fits
        expected += [one.revision for one in made.events if one.revision <= to]
        waiting = made.head.revision - to
        assert (f"{waiting} more change" in changes) or waiting == 0
        at = [one.revision for one in made.events].index(to) if to < made.to.revision else None
        assert block.told[made.workspace].to_check == (made.checks[at] if at is not None else 22)
    assert told == expected


def test_g15_the_first_line_fits_shortened():
    made = batch([event(4, fields=["title"]), event(5, "delete", entity=("plan", "p2"))], [row(title="x" * 5000)])
    found = lines(made, budget=Budget(changes=100, value=5000))
    assert found[0].startswith('r4, user u_1, plan p1: title is now "xxx')
    assert found[0].endswith("x…")
    assert found[1].startswith("1 more change is not listed here")
    assert count_bytes("\n".join([CHANGES, *found])) <= 100


def test_g15_the_first_row_fits_shortened_and_stays_json():
    found = text(batch(rows=[row(title='"' * 5000), row(("plan", "p2"), title="y")]), budget=Budget(current=100, value=5000))
    (only,) = json.loads(found.split("\n")[1])["plan"]
    assert only.startswith('{"title": "')
    assert found.split("\n")[2] == "1 more of plan is not shown here."
    assert count_bytes(found) <= 100


def test_g15_a_cut_ends_where_the_last_told_event_stands():
    """Whatever was passed silently behind it waits with the rest."""
    made = batch([event(4, "delete"), event(6, "delete", entity=("plan", "p2" * 30))], to=Position(9, 22), head=Position(9, 77))
    block = render([made], run="r", thread="t", budget=Budget(changes=63))
    assert (block.told["w1"].to_revision, block.told["w1"].to_check) == (4, 104)
    assert "5 more changes are not listed here" in block.text
    assert render([made], run="r", thread="t", budget=LARGE).told["w1"] == Told("r", 3, 9, 11, 22)


def test_g15_a_value_of_10_megabytes_takes_no_time():
    made = batch([event(4, fields=["title"])], [row(title="x" * 10_000_000, details={"a": "y" * 10_000_000})])
    assert len(text(made, budget=Budget())) < 3000
    assert len(text(replace(made, rows=(), loaded={"all": {"a": ["z" * 10_000_000]}}), budget=Budget())) < 3000


def test_a_person_without_an_id_is_still_a_person():
    assert lines(batch([event(4, "delete", actor=Actor("user"))])) == ["r4, user, plan p1 was deleted"]
    assert SOMEBODY.id == "u_1"
