"""`crosslane algorithms` and `crosslane choose`: the library's catalogue and choices.

What is wrong is told with its remedy.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, CommandLine
from crosslane.algorithms import print_choice

COLLECTIVES = re.findall(r'\(\s*"(\w+)",\s*direct\(', (ROOT / "tools" / "generate" / "routes.py").read_text())


def choose(command: CommandLine, *words: object, **variables: str) -> dict[str, Any]:
    done = command("choose", "--json", *words, **variables)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_catalogue(built: CommandLine) -> None:
    done = built("algorithms", "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out)
    assert all({"collective", "name", "summary", "source", "supports"} <= row.keys() for row in rows)
    assert len({(row["collective"], row["name"]) for row in rows}) == len(rows)
    # Every collective that has a GPU route has an algorithm that takes it, whatever its size and buffers.
    for collective in COLLECTIVES:
        supports = [row["supports"] for row in rows if row["collective"] == collective and row["supports"]]
        assert any(one["most_bytes"] is None and not one["needs_mapped_buffers"] for one in supports), collective
    by_name = {(row["collective"], row["name"]): row["supports"] for row in rows}
    assert by_name["allreduce", "ll"]["most_bytes"] == 256 << 10
    assert by_name["allreduce", "two_shot"]["needs_mapped_buffers"]
    assert not by_name["allreduce", "one_shot"]["needs_mapped_buffers"]


def limits(row: dict[str, Any]) -> list[int]:
    """The most KiB among 2, 4 and 8 ranks."""
    assert [one["ranks"] for one in row["supports"]["most_bytes_of"]] == [2, 4, 8]
    return [one["most_bytes"] >> 10 for one in row["supports"]["most_bytes_of"]]


def test_limits_are_the_documents(built: CommandLine) -> None:
    rows = {(row["collective"], row["name"]): row for row in json.loads(built("algorithms", "--json").out)}
    text = (ROOT / "docs" / "collectives.md").read_text()
    (line,) = re.findall(r"^\| `two_shot_ll` .*$", text, re.MULTILINE)
    two, four, eight = limits(rows["allreduce", "two_shot_ll"])
    assert f"all-reduce of up to {two} KiB between two ranks, {four} KiB among four, {eight} KiB among eight" in line
    two, four, eight = limits(rows["reduce", "two_shot_ll"])
    assert f"reduce of up to {two}, {four} and {eight} KiB" in line
    (line,) = re.findall(r"^\| `ll` .*$", text, re.MULTILINE)
    two, four, eight = limits(rows["allgather", "ll"])
    assert two == four
    assert f"up to {four} KiB among up to four ranks, {eight} KiB among eight" in line
    (line,) = re.findall(r"^\| `ll128` .*$", text, re.MULTILINE)
    two, four, eight = limits(rows["allgather", "ll128"])
    assert two == four
    assert f"up to {four} KiB among up to four ranks, {eight} KiB among eight" in line
    documented = ("ll", "ll128", "two_shot_ll", "gsb", "btb")
    for (_, name), row in rows.items():
        if row["supports"] and row["supports"]["most_bytes"] is not None:
            assert name in documented or name.startswith("hierarchy"), f"docs/collectives.md names no limit of {name}"
    assert set(limits(rows["reduce", "gsb"])) == {32 << 20}
    assert "| `gsb` | all-reduce, reduce, broadcast, up to 32 GiB |" in text


#: Words of the table in docs/collectives.md, the longer ones first.
WORDS = {
    "all-to-all-v": "alltoallv", "all-to-all": "alltoall", "all-reduce": "allreduce", "all-gather": "allgather",
    "`MPI_Reduce_scatter_block`": "reduce_scatter_block", "reduce-scatter": "a reduce-scatter, which of the two",
    "broadcast": "broadcast", "gatherv": "gatherv", "scatterv": "scatterv", "gather": "gather", "scatter": "scatter",
    "reduce": "reduce",
}  # fmt: skip


def test_collectives_are_the_documents(built: CommandLine) -> None:
    has: dict[str, set[str]] = {}
    for row in json.loads(built("algorithms", "--json").out):
        has.setdefault(row["name"], set()).add(row["collective"])
    text = (ROOT / "docs" / "collectives.md").read_text()
    told: dict[str, set[str]] = {}
    for name, column in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text.split("`crosslane algorithms`")[0], re.MULTILINE):
        if re.match("all,|the (others|same)", column):
            continue
        named = {WORDS[word] for word in re.findall("|".join(map(re.escape, WORDS)), column)}
        if "their v forms" in column:
            named |= {one + "v" for one in named} & {"gatherv", "scatterv", "allgatherv", "alltoallv"}
        told[name] = told.get(name, set()) | named
    assert {"pipelined", "ring", "ll128", "pairwise", "copy_engine"} <= told.keys()
    assert told == {name: has[name] for name in told}


def test_papers_are_listed(built: CommandLine) -> None:
    texts = [row["source"] for row in json.loads(built("algorithms", "--json").out)]
    texts += [file.read_text() for file in [*(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")]]
    cited = {word for text in texts for word in re.findall(r"\b(COLL|SELECT|TYPES|ADAPT|ASYNC)\b", text)}
    papers = (ROOT / "docs" / "architecture.md").read_text().split("## Papers")[1]
    assert cited <= set(re.findall(r"^\| (\w+) \|", papers, re.MULTILINE))
    assert "docs/architecture.md" in built("algorithms").out


def test_catalogue_as_a_table(built: CommandLine) -> None:
    done = built("algorithms")
    assert done.status == 0, done.err
    for words in ("two_shot", "needs mapped buffers", "up to 256k", "allreduce"):
        assert words in done.out


def test_choice_by_shipped_preferences(built: CommandLine) -> None:
    small = choose(built, "allreduce", "1k")
    assert small["algorithm"] == "ll"
    assert [call["mapped"] for call in small["calls"]] == [False]
    assert "shipped" in small["calls"][0]["why"]
    middle = choose(built, "broadcast", "128k", "-n", 8)
    assert middle["algorithm"] == "ll128"
    assert [(call["algorithm"], call["enqueued_alone"]) for call in middle["calls"]] == [
        ("ll128", False),
        ("zero_copy", True),
    ]
    large = choose(built, "allreduce", "8m", "-n", 8, "--gpus", 4)
    assert large["ranks_a_gpu"] == 2
    assert [(call["mapped"], call["algorithm"]) for call in large["calls"]] == [
        (False, "two_shot_window"),
        (True, "two_shot"),
    ]
    fates = {one["text"]: one["fate"] for one in large["calls"][0]["preferences"]}
    assert fates["0-64k:ll@8"] == "for other sizes"
    assert fates["256k-16m:two_shot"] == "does not support this call"
    assert fates["128k-:two_shot_window"] == "taken"


def test_choice_by_settings(built: CommandLine) -> None:
    wanted = {"CROSSLANE_ALLGATHER": "0-:zero_copy,0-4k:window"}
    call = choose(built, "allgather", "100", **wanted)["calls"][0]
    assert call["algorithm"] == "window"
    assert call["why"] == "preference 0-4k:window (CROSSLANE_ALLGATHER)"
    assert call["preferences"][0]["fate"] == "does not support this call"
    assert choose(built, "allgather", "100", CROSSLANE_ALLGATHER="0-4k:mpi")["algorithm"] == "mpi"


@pytest.mark.parametrize(
    ("name", "value"), [("CROSSLANE_DISABLE", "1"), ("CROSSLANE_MODE", "passthrough"), ("CROSSLANE_GPU", "none")]
)
def test_settings_that_forward_everything(built: CommandLine, name: str, value: str) -> None:
    answer = choose(built, "allreduce", "1m", "-n", 4, **{name: value})
    assert answer["algorithm"] == "forwarded"
    assert f"{name}={value}" in answer["calls"][0]["why"]


def test_pretended_nodes_count(built: CommandLine) -> None:
    def nodes(*words: object, size: int) -> int:
        return choose(built, "allreduce", "1m", *words, CROSSLANE_NODE_SIZE=str(size))["nodes"]

    assert nodes("-n", 8, size=0) == 1
    assert nodes("-n", 8, size=2) == 4
    assert nodes("-n", 8, size=3) == 3
    assert nodes("-n", 8, size=8) == 1
    assert nodes("-n", 8, "--nodes", 2, size=4) == 2
    assert nodes("-n", 8, "--nodes", 2, size=3) == 4  # ranks 0 to 2, 3, 4 to 5, 6 to 7
    assert nodes("-n", 8, "--nodes", 2, size=100) == 2
    answer = choose(built, "allreduce", "1m", "-n", 8, CROSSLANE_NODE_SIZE="4", CROSSLANE_MIXED="0")
    assert answer["algorithm"] == "hierarchy(gsb,btb)"
    # No node has more than may go direct.
    answer = choose(built, "allreduce", "1m", "-n", 64, CROSSLANE_NODE_SIZE="16", CROSSLANE_MIXED="0")
    assert answer["algorithm"] == "hierarchy(gsb,btb)"


def test_barrier_is_the_mpi_s_own_but_on_a_stream(built: CommandLine) -> None:
    answer = choose(built, "barrier", 0)
    assert answer["algorithm"] == "forwarded"
    assert [(call["algorithm"], call["enqueued_alone"]) for call in answer["calls"]] == [
        ("forwarded", False),
        ("ll", True),
    ]
    shown = built("choose", "barrier", 0).out
    assert "barrier of 0 on 2 ranks, MPI_Barrier: forwarded" in shown
    assert "barrier of 0 on 2 ranks, enqueued: ll" in shown
    for words in (["-n", 1], ["-n", 8, "--nodes", 2]):
        assert [call["algorithm"] for call in choose(built, "barrier", 0, *words)["calls"]] == ["forwarded"]


def test_mpi_s_word_for_a_broadcast(built: CommandLine) -> None:
    assert choose(built, "bcast", "1m") == choose(built, "broadcast", "1m")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["allreduce", "0"], "nothing to send"),
        (["allreduce", "8", "-n", "1"], "alone"),
        (["allreduce", "8", "-n", "33"], "32 ranks"),
        (["allreduce", "8", "--op", "band"], "does not define band for f32"),
    ],
)
def test_what_is_staged_whatever_is_preferred(built: CommandLine, words: list[str], why: str) -> None:
    answer = choose(built, *words)
    assert answer["algorithm"] == "mpi"
    assert why in answer["calls"][0]["why"]


def test_among_nodes_the_user_says(built: CommandLine) -> None:
    words = ["allreduce", "1m", "-n", 64, "--nodes", 8]
    assert "CROSSLANE_MIXED" in choose(built, *words)["calls"][0]["why"]
    assert choose(built, *words, CROSSLANE_MIXED="0")["algorithm"] == "hierarchy(gsb,btb)"
    assert choose(built, "allreduce", "1k", "--nodes", 2, CROSSLANE_MIXED="0")["algorithm"] == "mpi"
    assert choose(built, "allgather", "1m", "--nodes", 2, CROSSLANE_MIXED="0")["algorithm"] == "mpi"
    preferred = {"CROSSLANE_ALLREDUCE": "0-:btb"}
    assert choose(built, *words, **preferred)["algorithm"] == "btb"
    assert choose(built, *words, **preferred, CROSSLANE_MIXED="1")["algorithm"] == "mpi"
    assert choose(built, *words, **preferred, CROSSLANE_DETERMINISTIC="1")["algorithm"] == "mpi"
    assert "32 ranks of a node" in choose(built, "allreduce", "1m", "-n", 66, "--nodes", 2)["calls"][0]["why"]


@pytest.mark.parametrize(
    ("words", "variables", "told"),
    [
        (["all_reduce", "8"], {}, '"all_reduce" is no collective; there are allreduce, reduce'),
        (["allreduce", "eight"], {}, "'eight' is no number of bytes"),
        (["allreduce", "9" * 5000], {}, "a number of bytes has 5000 digits"),
        (["\udcff", "8"], {}, "the collective '\\udcff' is not text"),
        (["allreduce", "8", "--op", "\udcff"], {}, "--op '\\udcff' is not text"),
        (["allreduce", "99999999999g"], {}, "; it must be from 0 to 9223372036854775807"),
        (["allreduce", "8", "-n", "4294967297"], {}, "ranks is 4294967297; it must be from 1 to 1073741824"),
        (["allreduce", "8", "-n", "4", "--gpus", "8"], {}, "gpus is 8; it must be from 1 to 4"),
        (["allreduce", "8", "-n", "4", "--nodes", "5"], {}, "nodes is 5; it must be from 1 to 4"),
        (["allreduce", "7"], {}, "7 bytes are no whole number of f32 elements"),
        (["allreduce", "8", "--op", "plus"], {}, '"plus" is no op; there are sum'),
        (["broadcast", "8", "--op", "foo"], {}, '"foo" is no op; there are sum'),
        (["broadcast", "8", "--element", "float"], {}, '"float" is no element; there are i8'),
        (["allreduce", "8", "--element", "float"], {}, '"float" is no element; there are i8'),
        (["allreduce", "8"], {"CROSSLANE_ALLREDUCE": "nonsense"}, 'CROSSLANE_ALLREDUCE: "nonsense" is no algorithm'),
    ],
)
def test_what_is_wrong_is_told(built: CommandLine, words: list[str], variables: dict[str, str], told: str) -> None:
    done = built("choose", *words, **variables)
    assert done.status == 2
    assert told in done.err
    assert "remedy" in done.err
    assert "Traceback" not in done.err


def test_choice_s_words_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """Preferences are the user's."""
    preference = {"text": "0-4k:a[/b]", "origin": "[red]", "fate": "taken"}
    call = {"algorithm": "[run1]", "summary": ":x:", "why": "[/]", "preferences": [preference]}
    print_choice({"collective": "allreduce", "bytes": 8, "ranks": 2, "calls": [call]})
    out = capsys.readouterr().out
    for words in ("2 ranks: [run1]", ":x:; [/]", "0-4k:a[/b]", "[red]"):
        assert words in out


def test_library_of_another_version(stand_ins: Path) -> None:
    done = CommandLine(stand_ins)("algorithms")
    assert done.status == 2
    assert "crosslane_algorithms_json" in done.err
    assert "remedy" in done.err


def test_doctor_shows_a_gpu_route_for_each(built: CommandLine) -> None:
    report = json.loads(built("doctor", "--json", "--gpus", "none").out)
    direct = {one["procedure"] for one in report["coverage"] if one["route"] == "gpu"}
    names = {re.sub("_|mpi_", "", one.lower().replace("bcast", "broadcast")) for one in direct}
    plain = {collective.replace("_", "") for collective in COLLECTIVES}
    plain |= {"reducescatter", "allgatherv", "alltoallv", "gatherv", "scatterv"}
    assert plain | {"i" + name for name in plain} | {name + "init" for name in plain} <= names
    # A barrier is the MPI's own, but for streams; the functions of crosslane.h are those that the report names.
    rows = {one["procedure"]: one for one in report["coverage"]}
    assert rows["MPI_Barrier"] == {
        "procedure": "MPI_Barrier",
        "route": "forwarded",
        "on_stream": "crosslane_barrier_enqueue",
    }
    header = (ROOT / "include" / "crosslane" / "crosslane.h").read_text()
    enqueued = set(re.findall(r"CROSSLANE_API int (crosslane_\w+_enqueue)\(", header))
    assert {one["on_stream"] for one in report["coverage"] if "on_stream" in one} == enqueued
