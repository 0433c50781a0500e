"""`crosslane algorithms` and `crosslane choose`: the catalogue, and what a call would take and why.

Both are the library's own answers (src/api/algorithms.h), as tables.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from crosslane import libraries
from crosslane.bench import UNITS, print_bytes
from crosslane.child import DiedError, loaded
from crosslane.families import FAMILIES
from crosslane.problem import Problem


def parse_bytes(text: str) -> int:
    """Bytes of "64k", "2m", "1g" or "100", as settings write them."""
    match = re.fullmatch(r"(\d+)([kmg]?)", text.strip().lower())
    if not match:
        raise Problem(f"{text!r} is no number of bytes", "write it with an optional suffix k, m or g: 100, 64k, 1m")
    if len(match[1]) >= 20:  # Python itself refuses thousands, with an error of its own
        raise Problem(f"a number of bytes has {len(match[1])} digits", "write at most 9223372036854775807 bytes")
    return int(match[1]) * UNITS.get(match[2], 1)


def _ask(function: str, argument: str = "") -> dict[str, Any]:
    """What the library answers; both families have the same catalogue."""
    built = libraries.available()
    library = libraries.interposed(built[0] if built else FAMILIES[0])
    try:
        with loaded(str(library), [], {}) as child:
            answer = child.ask(function, argument)
    except DiedError as death:
        raise Problem(f"a process with {library.name} loaded crashed: {death}", "see crosslane doctor") from death
    if answer is None:
        raise Problem(f"{library} does not export {function}", "build it anew: it is of an older version")
    if "error" in answer:
        raise Problem(answer["error"], answer["remedy"])
    return answer


def catalogue() -> list[dict[str, Any]]:
    """The rows of the catalogue."""
    return _ask("crosslane_algorithms_json")["algorithms"]


def choose(collective: str, count: int, *, ranks: int, gpus: int, nodes: int, element: str, op: str) -> dict[str, Any]:
    """Where a call would go."""
    for what, name in (("the collective", collective), ("--element", element), ("--op", op)):
        if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes of the command line that are no UTF-8
            raise Problem(f"{what} {name!r} is not text", "write a name that `crosslane algorithms` or --help shows")
    request = {
        "collective": collective,
        "bytes": count,
        "ranks": ranks,
        "gpus": gpus or ranks,
        "nodes": nodes,
        "element": element,
        "op": op,
    }
    return _ask("crosslane_choose_json", json.dumps(request))


def print_json(answer: Any) -> None:
    """The answer as it is."""
    print(json.dumps(answer, indent=1))


def _supports(row: dict[str, Any]) -> str:
    """One line of words for what a row supports."""
    support = row["supports"]
    if support is None:
        return ""
    words = []
    if support["most_bytes"] is not None:
        limits = support["most_bytes_of"]
        if len({one["most_bytes"] for one in limits}) > 1:
            text = " / ".join(print_bytes(one["most_bytes"]) for one in limits)
            words.append(f"up to {text} among {' / '.join(str(one['ranks']) for one in limits)} ranks")
        else:
            words.append(f"up to {print_bytes(support['most_bytes'])}")
    least, most = support["least_ranks"], support["most_ranks"]
    words.append(f"{least} ranks" if least == most else f"{least} to {most} ranks")
    if support["several_ranks_a_gpu"]:
        words.append("several ranks a GPU (with MPS)")
    if support["needs_mapped_buffers"]:
        words.append("needs mapped buffers")
    if support["needs_peer_access"]:
        words.append("needs peer access")
    if support["cannot_combine"]:
        words.append(f"not {', '.join(support['cannot_combine'])}")
    return ", ".join(words)


def print_catalogue(rows: list[dict[str, Any]]) -> None:
    """The catalogue for people: algorithms of one name that differ in nothing but the collective share a row."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = (row["name"], row["summary"], row["source"], _supports(row))
        merged.setdefault(key, []).append(row["collective"])
    table = Table(title="algorithms of collectives between GPUs", box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    for column in ("collectives", "how", "supports", "source"):
        table.add_column(column, overflow="fold")
    for (name, summary, source, supports), collectives in merged.items():
        table.add_row(*map(Text, (name, ", ".join(collectives), summary, supports, source)))
    console = Console(emoji=False)
    console.print(table)
    if any("COLL" in row["source"] for row in rows):
        console.print("COLL is a paper: see docs/architecture.md, Papers", highlight=False)


def print_choice(answer: dict[str, Any]) -> None:
    """Where a call would go, for people."""
    console = Console(emoji=False)
    several = len(answer["calls"]) > 1
    for went in answer["calls"]:
        title = f"{answer['collective']} of {print_bytes(answer['bytes'])} on {answer['ranks']} ranks"
        if several:
            if answer["collective"] == "barrier":
                title += ", enqueued" if went.get("enqueued_alone") else ", MPI_Barrier"
            elif went.get("enqueued_alone"):
                title += ", enqueued on prepared buffers"
            else:
                title += ", buffers mapped" if went["mapped"] else ", first calls with these buffers"
        console.print(Text.assemble(f"{title}: ", (went["algorithm"], "bold")))
        console.print(f"  {went['summary']}; {went['why']}", markup=False, highlight=False, soft_wrap=True)
        if not went["preferences"]:
            continue
        table = Table(box=box.SIMPLE_HEAD)
        for column in ("preference", "from", ""):
            table.add_column(column, overflow="fold")
        for one in went["preferences"]:
            cells = (Text(one[key]) for key in ("text", "origin", "fate"))  # not markup: some is the user's
            table.add_row(*cells, style="bold" if one["fate"] == "taken" else None)
        console.print(table)
