"""The command line: parses, calls the hub, formats. `abreast --help` lists what there is."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ModuleNotFoundError as error:  # pragma: no cover - shown by hand in a venv without the extra
    raise SystemExit(f'The command line needs its extra: pip install "abreast[cli]" ({error.name} is missing).') from None

from abreast import Abreast, AbreastError, MissingExtraError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Keeps LLM agents in step with the data of your product.")
out, err = Console(), Console(stderr=True)

Where = Annotated[str, typer.Argument(metavar="MODULE:HUB", help="Where the hub is, for example app.sync:hub.")]
Workspace = Annotated[str, typer.Argument(help="The workspace's id.")]


def main() -> None:
    """The command's entry point: an error of abreast is a message and status 1, never a stack trace."""
    try:
        app()
    except AbreastError as error:
        err.print(f"abreast: {error.message}", style="red", markup=False, highlight=False)
        raise SystemExit(1) from None


@app.command()
def install(
    where: Where, sql: Annotated[bool, typer.Option("--sql", help="Print the statements; change nothing.")] = False
) -> None:
    """Make abreast's tables and the triggers of the tracked tables, or renew them."""
    hub = _hub(where)
    if sql:
        for statement in hub.blocking.install_sql():
            print(f"{statement};\n")
        return
    with out.status("installing"):
        hub.blocking.install()
    out.print("Installed.")


@app.command()
def uninstall(
    where: Where,
    log_too: Annotated[bool, typer.Option("--log-too", help="Also drop abreast's tables and all that is in them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the triggers; the log stays unless --log-too."""
    what = "the triggers AND the whole log" if log_too else "the triggers"
    if not yes and not typer.confirm(f"Remove {what}?"):
        raise typer.Exit(1)
    _hub(where).blocking.uninstall(log_too=log_too)
    out.print(f"Removed {what}.")


@app.command()
def check(where: Where) -> None:
    """Compare triggers and rows with the log. Status 1 if something is wrong."""
    with out.status("checking"):
        findings = _hub(where).blocking.check()
    if not findings:
        out.print("Nothing is wrong.")
        return
    table = Table("code", "table", "what is wrong, and what to do", "ids")
    for finding in findings:
        table.add_row(finding.code, finding.entity_type, finding.message, ", ".join(finding.entity_ids))
    out.print(table)
    raise typer.Exit(1)


@app.command()
def status(where: Where, workspace: Workspace) -> None:
    """Show every conversation's place in a workspace, the furthest behind first."""
    standings = _hub(where).blocking.standings(workspace)
    table = Table("conversation", "at", "of", "behind")
    for one in standings:
        table.add_row(one.thread, f"r{one.revision}", f"r{one.head}", str(one.behind))
    out.print(table if standings else "No conversation follows this workspace yet.")


@app.command()
def tell(where: Where, telling: Annotated[Literal["on", "shadow", "off"], typer.Argument()]) -> None:
    """Switch telling for all processes at once: on, shadow (read and noted, not told), or off."""
    _hub(where).blocking.tell(telling)
    out.print(f"Telling is {telling}, from the next model call on.")


@app.command()
def prune(
    where: Where, workspace: Workspace, horizon: Annotated[int, typer.Argument(help="The last revision to delete.")]
) -> None:
    """Delete events up to a revision, except the newest of each row. Conversations further back are told so."""
    _hub(where).blocking.prune(workspace, horizon=horizon)
    out.print(f"Pruned {workspace} up to r{horizon}.")


@app.command()
def serve(
    where: Where,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 finds a free one.")] = 8000,
    dev: Annotated[bool, typer.Option("--dev", help="Ask nobody who they are, on this machine only.")] = False,
) -> None:
    """Serve the hub's service over HTTP: conversations, approvals and streams, under /v1."""
    hub = _hub(where)
    running = import_module("abreast.server.running")
    running.serve(hub, host=host, port=port, development=dev, say=lambda text: print(text, file=sys.stderr, flush=True))


@app.command()
def gates(
    where: Where,
    in_a_row: Annotated[int, typer.Option(min=1, help="So many newest approvals, unchanged, earn a tool its freedom.")] = 20,
    days: Annotated[float, typer.Option(min=0, help="For so many days nobody must have rejected it.")] = 30,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default="all")] = None,
    form: Annotated[Literal["text", "json"], typer.Option("--format", help="What to print.")] = "text",
) -> None:
    """Show what people decided about each tool, and which of them have earned `allow`."""
    records = _hub(where).blocking.gates(tenant=tenant, in_a_row=in_a_row, days=days)
    if form == "json":
        print(json.dumps([{name: getattr(one, name) for name in one.__slots__} for one in records], ensure_ascii=False, indent=2))
        return
    if not records:
        out.print("No tool has asked yet.")
    for one in records:  # a line each: a table of so many columns fits no terminal
        earned = "  has earned allow" if one.earned else ""
        out.print(
            f"{one.tool}: {one.approved} of {one.asked} approved, {one.in_a_row} in a row{earned}", markup=False, soft_wrap=True
        )
        rest = {name: getattr(one, name) for name in ("edited", "rejected", "answered", "expired", "withdrawn", "undone")}
        out.print("  " + ", ".join(f"{name} {number}" for name, number in rest.items()), markup=False, soft_wrap=True)


labels = typer.Typer(no_args_is_help=True, help="What people decided, for training and tests.")
app.add_typer(labels, name="labels")


@labels.command()
def export(
    where: Where,
    output: Annotated[Path | None, typer.Option(help="A file to write to.", show_default="what is printed")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default="all")] = None,
) -> None:
    """Write one JSON object a decision and line: the tool, its arguments before and after, what was decided, by whom, when."""
    # Half characters, which no file takes, stay escaped.
    found = (json.dumps(label, ensure_ascii=False) for label in _hub(where).blocking.labels(tenant=tenant))
    lines = (line.encode(errors="backslashreplace").decode() for line in found)
    with contextlib.nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8") as file:
        for line in lines:
            print(line, file=file)


@app.command(name="eval")
def evaluate(
    model: Annotated[
        str, typer.Option(help="A GGUF file, MODULE:OBJECT, or a chat model by LangChain's name. Empty: a small packaged one.")
    ] = "",
    arms: Annotated[
        str,
        typer.Option(
            help="Forms of the request, with commas, or `all`. Empty: no_sync, ceiling, system_snapshot, system_changes, "
            "default. These, and how to spell others: docs/guides/eval.md, In which form."
        ),
    ] = "",
    kinds: Annotated[str, typer.Option(help="Kinds of case, with commas. Empty: all.")] = "",
    language: Annotated[Literal["en", "ko"], typer.Option(help="The language of the conversations.")] = "en",
    half: Annotated[Literal["both", "choose", "held_out"], typer.Option(help="Half of the cases.")] = "both",
    number: Annotated[int, typer.Option(min=2, help="Cases of each kind, every other one in the held-out half.")] = 28,
    first: Annotated[
        int,
        typer.Option(min=1, help="Only so many cases of each kind in each half: 1 asks two of each kind.", show_default="all"),
    ] = 10**6,
    seed: Annotated[int, typer.Option(help="Another seed makes other cases.")] = 7,
    processes: Annotated[int, typer.Option(min=0, help="Workers. 0: as many as there are cores.")] = 0,
    cache: Annotated[
        Path | None, typer.Option(help="The file that keeps the answers of all runs.", show_default="~/.cache/abreast/answers.db")
    ] = None,
    output: Annotated[Path, typer.Option(help="The report, as JSON.")] = Path("results.json"),
    chart: Annotated[Path | None, typer.Option(help="Also draw it, as SVG.")] = None,
    table: Annotated[Path | None, typer.Option(help="Also write it as Markdown tables.")] = None,
    answers: Annotated[Path | None, typer.Option(help="Also write every answer, as JSON.")] = None,
) -> None:
    """Ask a model about data that changed, and count how many of its answers are fresh and stale."""
    try:
        asking, forms, command = (import_module(f"abreast.evals.{name}") for name in ("asking", "forms", "command"))
    except ModuleNotFoundError as error:
        raise MissingExtraError(f'The eval needs its extra: pip install "abreast[eval]" ({error.name} is missing).') from None
    usual = asking.Run()
    run = asking.Run(
        model=model,
        arms=tuple(forms.NAMED) if arms == "all" else _names(arms) or usual.arms,
        kinds=_names(kinds) or usual.kinds,
        number=number,
        first=first,
        half=half,
        language=language,
        seed=seed,
        cache=cache or usual.cache,
        processes=processes or os.cpu_count() or 1,
    )
    command.evaluate(run, err, output=output, picture=chart, table=table, answers=answers)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


@app.command()
def doctor(
    where: Annotated[str, typer.Argument(metavar="MODULE:GRAPH", help="Where the graph is, or a function that makes it.")],
    thread: Annotated[str | None, typer.Option(help="A thread whose checkpoints are measured; needs --checkpointer.")] = None,
    checkpointer: Annotated[
        str | None, typer.Option(help="A SQLite file, a PostgreSQL URL, or MODULE:SAVER. It is only read.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="MODULE:CLASS of the run context, if the graph names none.")] = None,
    form: Annotated[Literal["text", "json", "sarif"], typer.Option("--format", help="What to print.")] = "text",
    select: Annotated[str, typer.Option(help="Only these codes, with commas; AB1 means all that begin so.")] = "",
    ignore: Annotated[str, typer.Option(help="Not these codes.")] = "",
) -> None:
    """Look for values in the wrong place of a LangGraph application. Status 1: findings; 2: it could not be looked."""
    from abreast.doctor import formats, running

    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the application prints when it is imported is no part of the report
            report = running.look(
                where, thread=thread, checkpointer=checkpointer, context=context, select=_codes(select), ignore=_codes(ignore)
            )
    except AbreastError as error:
        err.print(f"abreast: {error.message}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from None
    print(formats.printed(report, form))
    if form == "json":
        for note in report.notes:
            print(f"note: {note.place}: {note.message}", file=sys.stderr)
    raise typer.Exit(report.status)


def _codes(text: str) -> list[str]:
    return [code for code in text.replace(" ", "").split(",") if code]


def _hub(where: str) -> Abreast:
    name, _, attribute = where.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(import_module(name), attribute or "hub")
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{error}. Run this in your project's folder, with its packages installed.") from None
    except AttributeError:
        raise typer.BadParameter(f"{name} has no {attribute or 'hub'}.") from None
    if not isinstance(found, Abreast):
        raise typer.BadParameter(f"{where} is {type(found).__name__}, not an Abreast hub.")
    return found
