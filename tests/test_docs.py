"""The documentation is true: its code runs, its output is what is printed, its lists are complete, its links lead somewhere.

Every page is run as a reader would read it: its blocks in order, in one namespace, in an empty folder. What a block
prints is what the page shows below it. A page that reads DATABASE_URL is run on both databases.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import sqlite3
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

import abreast
from abreast import Abreast, errors, records
from abreast.hub.service import Service

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
NOT_FOR_APPLICATIONS = {"service.access", "service.authenticate", "service.blocking", "service.replies"}
"""What the HTTP face needs of a service, and the other door, of which the page speaks in words."""
STEPS = 20
"""Lines of change that the quickstart must stay under."""


@dataclass(frozen=True)
class Block:
    """One fenced block: the words behind its fence, its text, and the line where it begins."""

    words: tuple[str, ...]
    text: str
    line: int
    before: str

    @property
    def kind(self) -> str:
        return self.words[0] if self.words else ""


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, with the last line of prose before each."""
    found: list[Block] = []
    inside: tuple[tuple[str, ...], int] | None = None
    text: list[str] = []
    before = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            if inside is not None:
                text.append(line)
            elif line.strip():
                before = line
        elif inside is None:
            inside, text = (tuple(line[3:].split()), number), []
        else:
            found.append(Block(inside[0], "\n".join(text) + "\n", inside[1], before))
            inside = None
    assert inside is None, f"{page}: a block is not closed"
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def runnable(page: Path) -> bool:
    return any(block.kind in ("python", "sql") or block.words == ("console", "run") for block in blocks_of(page))


RUNS = [
    pytest.param(page, kind, id=f"{name_of(page)}-{kind}")
    for page in PAGES
    if runnable(page)
    for kind in (("sqlite", "postgresql") if "DATABASE_URL" in page.read_text(encoding="utf-8") else ("sqlite",))
]


class Reader:
    """Does what a page says, block by block, in one namespace."""

    def __init__(self, page: Path, kind: str, database: Any, folder: Path) -> None:
        self.page, self.kind, self.database, self.folder = page, kind, database, folder
        self.loop = asyncio.new_event_loop()
        self.known = set(sys.modules)
        # A module of its own, so that classes and annotations of the page find the names of the page.
        self.module = types.ModuleType(f"page_{page.stem.replace('.', '_')}")
        sys.modules[self.module.__name__] = self.module

    def read(self) -> None:
        printed: str | None = None
        at = 0
        for block in blocks_of(self.page):
            if printed and block.kind in ("text", ""):
                shown = _plain(printed) if block.kind else _plain(printed)[-len(_plain(block.text)) :]  # the README shows the end
                assert shown == _plain(block.text), f"{name_of(self.page)}:{block.line} shows another output"
                printed = None
                continue
            assert not printed, f"{name_of(self.page)}:{at} prints, and the page does not show it:\n{printed}"
            at, printed = block.line, self.do(block)
        assert not printed, f"{name_of(self.page)}:{at} prints, and the page does not show it:\n{printed}"

    def do(self, block: Block) -> str | None:
        where = f"{name_of(self.page)}:{block.line}"
        if block.words[1:2] in (("sqlite",), ("postgresql",)) and block.words[1] != self.kind:
            return None
        if block.kind == "python":
            if "no-run" in block.words:
                assert "only compiled" in block.before, f"{where} does not say that it is only compiled"
                compile(block.text, where, "exec", dont_inherit=True)
                return None
            file = next((word.removeprefix("file=") for word in block.words if word.startswith("file=")), None)
            if file:
                (self.folder / file).write_text(block.text, encoding="utf-8")
                return None
            return self.python(block.text, where)
        if block.kind == "sql":
            self.sql(block.text)
        if block.words == ("console", "run"):
            self.console(block.text, where)
        return None

    def python(self, text: str, where: str) -> str:
        # As in `python -m asyncio`: `await` stands at the top.
        code = compile(text, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = eval(code, self.module.__dict__)
            if code.co_flags & inspect.CO_COROUTINE:
                self.loop.run_until_complete(result)
        return printed.getvalue()

    def sql(self, text: str) -> None:
        """Another program: the plain driver, which knows nothing of abreast."""
        if self.kind == "postgresql":
            with psycopg.connect(self.database.plain, autocommit=True) as connection:
                connection.execute(text)  # type: ignore[call-overload]
            return
        with contextlib.closing(sqlite3.connect("app.db")) as raw:
            raw.executescript(text)

    def console(self, text: str, where: str) -> None:
        """Every `$ command`, and under it exactly what it says; `# status 1` behind a command is its exit status."""
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "130"}
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            status = re.search(r"# status (\d)$", command)
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            said = done.stdout + done.stderr
            assert done.returncode == (int(status[1]) if status else 0), f"{where}: {command}\n{said}"
            wanted = "(?s:.*?)".join(re.escape(piece.strip()) for piece in _plain(shown).split("[...]"))
            assert re.fullmatch(wanted, _plain(said)), f"{where}: {command}\n{said}"

    def close(self) -> None:
        for value in list(vars(self.module).values()):
            if isinstance(value, Abreast):
                self.loop.run_until_complete(value.close())
            elif isinstance(value, AsyncEngine):
                self.loop.run_until_complete(value.dispose())
            elif isinstance(value, sa.Engine):
                value.dispose()
        self.loop.close()
        for name in set(sys.modules) - self.known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(self.folder)) or name == self.module.__name__:
                del sys.modules[name]


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reader]:
    page, kind = request.param
    database = request.getfixturevalue("postgres" if kind == "postgresql" else "sqlite")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(str(tmp_path))
        patch.setenv("DATABASE_URL", database.url)
        made = Reader(page, kind, database, tmp_path)
        with roles_put_back(database):
            yield made
            made.close()


@contextlib.contextmanager
def roles_put_back(database: Any) -> Iterator[None]:
    """Roles belong to the server, not to the test's database: those that a page creates go with it."""
    if database.kind == "sqlite":
        yield
        return

    def roles(connection: psycopg.Connection[Any]) -> set[str]:
        return {name for (name,) in connection.execute("select rolname from pg_roles")}

    with psycopg.connect(database.plain, autocommit=True) as connection:
        before = roles(connection)
        yield
        for name in roles(connection) - before:
            connection.execute(f'reassign owned by "{name}" to current_user; drop owned by "{name}"; drop role "{name}"')


@pytest.mark.parametrize("reader", [pytest.param(run.values, id=run.id) for run in RUNS], indirect=True)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(reader):
    reader.read()


# -- the quickstart ------------------------------------------------------------------------------------------------------


def changed_lines(page: Path) -> int:
    """Lines of code under the headings of the steps."""
    text = page.read_text(encoding="utf-8")
    steps = [part for part in re.split(r"^## ", text, flags=re.MULTILINE) if re.match(r"Step \d|\d단계", part)]
    assert steps
    code = [
        line for part in steps for block in re.findall(r"^```python\n(.*?)^```", part, re.M | re.S) for line in block.splitlines()
    ]
    return len([line for line in code if line.strip()])


@pytest.mark.parametrize("name", ["quickstart.md", "quickstart.ko.md"])
def test_the_quickstart_changes_as_few_lines_as_it_says(name):
    page = DOCS / name
    lines = changed_lines(page)
    assert lines < STEPS
    assert re.findall(r"\*\*(\d+)(?: lines|줄)\*\*", page.read_text(encoding="utf-8")) == [str(lines)]


# -- Korean pages --------------------------------------------------------------------------------------------------------


class _Wordless(ast.NodeTransformer):
    """Takes the words out of code: what a person reads may be said in another language."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        said = isinstance(node.value, str) and (" " in node.value or not node.value.isascii())
        return ast.Constant("") if said else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("")


def _shape(block: Block) -> Any:
    if block.kind != "python":
        return block.words
    return ast.dump(_Wordless().visit(ast.parse(block.text)))


@pytest.mark.parametrize("name", ["index", "quickstart"])
def test_a_korean_page_says_as_much_as_its_twin(name):
    english, korean = DOCS / f"{name}.md", DOCS / f"{name}.ko.md"

    def headings(page: Path) -> list[int]:
        return [len(found) for found in re.findall(r"^(#+) ", page.read_text(encoding="utf-8"), re.M)]

    def links(page: Path) -> list[str]:
        found = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        return sorted(one.replace(".ko.md", ".md") for one in found if one not in (english.name, korean.name))

    assert headings(english) == headings(korean)
    assert [_shape(block) for block in blocks_of(english)] == [_shape(block) for block in blocks_of(korean)]
    assert links(english) == links(korean)


# -- lists that must be complete -----------------------------------------------------------------------------------------


def rows_of(page: str, heading: str | None = None) -> dict[str, list[str]]:
    """The rows of a page's tables (under one heading), by the code in their first cell."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading is not None:
        text = re.split(r"^#+ ", text.partition(f"{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        name = re.match(r"`([^`]+)`", cells[0]) if cells else None
        if name:
            rows[name[1]] = cells
    return rows


def test_the_api_page_names_everything_of_the_face():
    listed = {name.partition("(")[0] for name in rows_of("reference/api.md")}
    assert set(abreast.__all__) <= listed
    for called, face in (("hub", Abreast), ("service", Service)):
        methods = {f"{called}.{name}" for name in dir(face) if not name.startswith("_")}
        assert methods - NOT_FOR_APPLICATIONS == {name for name in listed if name.startswith(f"{called}.")}


def test_the_errors_page_names_every_error_and_draws_the_tree():
    public = {
        name for name in abreast.__all__ if isinstance(found := getattr(abreast, name), type) and issubclass(found, Exception)
    }
    assert set(rows_of("reference/errors.md")) == public
    page = [line.strip() for line in (DOCS / "reference/errors.md").read_text(encoding="utf-8").splitlines()]
    tree = [line.strip() for line in (errors.__doc__ or "").splitlines() if re.search(r"\b[A-Z]\w+Error\b", line)]
    assert [line for line in tree if line not in page and re.findall(r"\w+Error", line)[0] in public] == []


@pytest.mark.parametrize("option", inspect.signature(Abreast.__init__).parameters.values(), ids=str)
def test_the_settings_page_names_every_option_and_its_default(option):
    if option.name == "self":
        return
    cells = rows_of("reference/settings.md", "## Options of `Abreast`")[option.name]
    default = {inspect.Parameter.empty: "required", None: "`None`"}.get(option.default, f"`{option.default!r}`")
    assert cells[1].replace('"', "'") == default


def test_the_conversations_page_names_every_option_of_a_service_and_its_default():
    listed = rows_of("guides/conversations.md", "## A service")
    options = {name: option for name, option in inspect.signature(Abreast.service).parameters.items() if name != "self"}
    assert list(listed) == list(options)
    for name, option in options.items():
        default = "required" if option.default is inspect.Parameter.empty else f"`{option.default!r}`"
        assert listed[name][1].replace('"', "'") == default


def test_the_streaming_page_names_every_event():
    assert list(rows_of("guides/streaming.md", "## Events")) == list(get_args(records.EventType))


def test_the_capture_page_names_every_option_of_track():
    options = [name for name in inspect.signature(Abreast.track).parameters if name != "self"]
    assert list(rows_of("guides/capture.md", "## Options of `track`")) == options


def test_the_capture_page_names_every_finding():
    code = r'(?:Finding\(\s*|say\(|code, text = \(?\s*|^ +\(\s*)"((?:no|not|trigger|column|row|log|without)_[a-z_]+)"'
    made = set()
    for module in (ROOT / "src" / "abreast").rglob("*.py"):
        made |= set(re.findall(code, module.read_text(encoding="utf-8"), re.M))
    assert {"no_trigger", "column_unwatched", "row_gone_unseen", "log_gap"} < made
    text = (DOCS / "guides/capture.md").read_text(encoding="utf-8").partition("| code | means |")[2].partition("## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    listed = {code for line in rows for code in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert listed == made


def test_the_schema_page_names_every_table_and_column(database, hubs):
    from planner import planner

    hub, engine = planner(database, hubs)
    assert hub.blocking.check() == []
    if database.kind == "postgresql":
        query = "select table_name, column_name from information_schema.columns where table_schema = 'abreast'"
    else:
        query = (
            "select m.name, c.name from sqlite_master m, pragma_table_info(m.name) c "
            "where m.type = 'table' and m.name glob 'abreast_*'"
        )
    tables: dict[str, set[str]] = {}
    with engine.connect() as connection:
        for table, column in connection.exec_driver_sql(query):
            tables.setdefault(table.removeprefix("abreast_"), set()).add(column)
    assert {"meta", "workspace", "event", "cursor", "delivery", "miss"} < set(tables)
    here = "PostgreSQL" if database.kind == "postgresql" else "SQLite"
    page = (DOCS / "reference/schema.md").read_text(encoding="utf-8")
    for table, columns in tables.items():
        heading = re.search(rf"^## `{table}`(?: \((\w+) only\))?$", page, re.M)
        assert heading, f"{table} is not on the page"
        assert heading[1] in (None, here)
        listed = rows_of("reference/schema.md", heading[0])
        assert {column for column, cells in listed.items() if cells[1] in ("both", here)} == columns, table
    for table, only in re.findall(r"^## `(\w+)`(?: \((\w+) only\))?$", page, re.M):
        assert table in tables or only not in ("", here), f"{table} is not in the database"


def test_the_cli_page_names_every_command_and_option():
    import typer

    from abreast.cli import app

    listed = rows_of("reference/cli.md")
    group: Any = typer.main.get_command(app)
    assert {name.split()[0] for name in listed if not name.startswith("-")} == set(group.commands)
    for command in group.commands.values():
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        missing = {option for option in options - {"--help"} if option not in listed}
        assert not missing, command.name


def test_the_guarantees_page_names_every_promise_and_the_tests_that_name_it():
    rows = {int(name[1:]): cells for name, cells in rows_of("design/guarantees.md").items() if re.fullmatch(r"G\d+", name)}
    assert sorted(rows) == list(range(1, 30))
    for number, cells in rows.items():
        named = re.findall(r"`(tests/[^`]+)`", cells[-1])
        if number >= 28:
            assert named == []
            assert "coming" in cells[-1]
            continue
        assert named, f"G{number} has no test"
        for one in named:
            text = (ROOT / one).read_text(encoding="utf-8")
            assert re.search(rf"\bdef test_\w*g0?{number}_|\bG{number}\b", text, re.I), f"{one} does not name G{number}"
        there = {p.relative_to(ROOT).as_posix() for p in (ROOT / "tests" / "contract").glob(f"test_g{number:02}_*.py")}
        assert there <= set(named), f"G{number}: the page leaves out {sorted(there - set(named))}"


# -- links ---------------------------------------------------------------------------------------------------------------


def slug(heading: str) -> str:
    """The anchor that a heading gets where the pages are read."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", ""))
    return text.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.M)
            assert anchor in {slug(heading) for heading in headings}, f"{name_of(page)} links to {target}"


def test_every_page_is_on_the_map():
    linked = {
        (DOCS / target).resolve()
        for target in re.findall(r"\]\(([^)#\s]+)", (DOCS / "index.md").read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target)
    }
    assert {page for page in DOCS.rglob("*.md") if page.name != "index.md"} <= linked
