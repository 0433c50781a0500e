"""`crosslane bench`: sizes, the table, the file, and that a wrong result is a failure. The program is a stand-in."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from conftest import HERE, TIMEOUT_S, CommandLine, alive, begun, compile_c, wait_for_ranks, wrapper
from crosslane.bench import parse_sizes, print_bytes
from crosslane.problem import Problem


@pytest.fixture
def bench(stand_ins: Path, tmp_path: Path, family: str) -> CommandLine:
    """The command line with stand-ins of the libraries and of this family's benchmark."""
    shutil.copytree(stand_ins, tmp_path / "lib")
    program = tmp_path / "bin" / f"crosslane_bench_{family}"
    compile_c(HERE / "programs" / "benchmark.c", program, compiler=wrapper(family))
    return CommandLine(tmp_path / "lib")


def test_table_and_file(bench: CommandLine, family: str, tmp_path: Path) -> None:
    file = tmp_path / "raw.json"
    done = bench(
        "bench", "allreduce", "-n", 2, "--mpi", family, "--sizes", "8,1k", "--gpus", "emulated:2", "--json", file
    )
    assert done.status == 0, done.err
    for words in ("allreduce, 2 ranks", "Crosslane", "by hand", "2.50", "NCCL left out: not here", "1k"):
        assert words in done.out
    raw = json.loads(file.read_text())
    assert raw["header"]["sizes"] == "8,1024"
    assert [(row["bytes"], row["column"]) for row in raw["rows"]] == [
        (8, "crosslane"), (8, "by_hand"), (1024, "crosslane"), (1024, "by_hand")
    ]  # fmt: skip


def test_table_in_an_encoding_that_lacks_its_letters(bench: CommandLine, family: str) -> None:
    words = ["bench", "allreduce", "--mpi", family, "--sizes", "8", "--gpus", "emulated:2"]
    done = bench(*words, PYTHONIOENCODING="ascii")
    assert done.status == 0, done.err
    assert "Crosslane ?s" in done.out


def test_broadcast_is_bcast(bench: CommandLine, family: str) -> None:
    for operation in ("broadcast", "bcast"):
        done = bench("bench", operation, "--mpi", family, "--sizes", "8", "--gpus", "emulated:2")
        assert done.status == 0, done.err
        assert "bcast, 2 ranks" in done.out


def test_wrong_result_fails(bench: CommandLine, family: str) -> None:
    done = bench("bench", "reduce", "--mpi", family, "--gpus", "emulated:2")
    assert done.status == 1
    assert "WRONG" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["allfold"], "unknown operation"),
        (["latency", "-n", "1"], "between two ranks"),
        (["allreduce", "--sizes", "9"], "multiples of 4"),
        (["allreduce", "--sizes", "16g"], "--sizes: 16g is too large"),
        (["allreduce", "--sizes", "9" * 5000], "--sizes: 99999999999999999999... is too large"),
        (["allreduce", "--iterations", "1000001"], "--iterations 1000001 are too many"),
        (["allreduce", "--gpus", "none"], "to be none"),
        (
            ["allreduce", "--gpus", "emulated:2", "--json", "/nonexistent/out.json"],
            "/nonexistent/out.json cannot be written",
        ),
    ],
)
def test_problems(bench: CommandLine, family: str, arguments: list[str], words: str) -> None:
    done = bench.refuse("bench", *arguments, "--mpi", family)
    assert done.status == 2
    assert words in done.err
    assert "remedy" in done.err


def test_file_that_takes_no_more(bench: CommandLine, family: str) -> None:
    """What was measured is shown all the same."""
    words = ["bench", "allreduce", "--mpi", family, "--sizes", "8", "--gpus", "emulated:2"]
    done = bench(*words, "--json", "/dev/full")
    assert done.status == 1
    assert "/dev/full cannot be written: No space left on device" in done.err
    assert "remedy" in done.err
    assert "standard output" not in done.err
    assert "2.50" in done.out


def test_file_stays_where_nothing_was_measured(bench: CommandLine, family: str, tmp_path: Path) -> None:
    file = tmp_path / "earlier.json"
    file.write_text("earlier")
    compile_c("int main(void) { return 3; }", tmp_path / "bin" / f"crosslane_bench_{family}", compiler=wrapper(family))
    done = bench("bench", "allreduce", "--mpi", family, "--gpus", "emulated:2", "--json", file)
    assert done.status != 0
    assert file.read_text() == "earlier"
    bench("bench", "allreduce", "--mpi", family, "--gpus", "emulated:2", "--json", tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def test_words_of_an_mpi_are_not_markup(bench: CommandLine, family: str, tmp_path: Path) -> None:
    source = (HERE / "programs" / "benchmark.c").read_text()
    source = source.replace("a stand-in", "a [stand-in] :x:").replace(
        'left_out\\": {\\"nccl\\": \\"not', 'left_out\\": {\\"nccl\\": \\"[/]not'
    )
    assert "[/]not" in source
    compile_c(source, tmp_path / "bin" / f"crosslane_bench_{family}", compiler=wrapper(family))
    done = bench("bench", "allreduce", "--mpi", family, "--sizes", "8", "--gpus", "emulated:2")
    assert done.status == 0, done.err
    assert "a [stand-in] :x:" in done.out
    assert "NCCL left out: [/]not here" in done.out


def test_words_of_a_launcher_are_passed_on(bench: CommandLine, family: str, tmp_path: Path) -> None:
    launcher = tmp_path / "srun"
    launcher.write_text("#!/bin/sh\nprintf '{ latin\\351\\n'\nshift 2\nexec \"$@\"\n")
    launcher.chmod(0o755)
    done = bench("bench", "allreduce", "--mpi", family, "--gpus", "emulated:2", "--launcher", launcher)
    assert done.status == 0, done.err
    assert "{ latin" in done.err
    assert "2.50" in done.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_a_signal_ends_the_ranks(bench: CommandLine, family: str, tmp_path: Path, number: signal.Signals) -> None:
    """A terminal that is closed sends one to the command alone: the launcher has a session of its own."""
    program = tmp_path / "bin" / f"crosslane_bench_{family}"
    words = bench.words("bench", "gather", "--mpi", family, "--gpus", "emulated:2")
    with begun(words, bench.environment) as process:
        ranks = wait_for_ranks(process, 2, program, "gather")
        process.send_signal(number)
        status = process.wait(timeout=TIMEOUT_S)
    assert status == (130 if number == signal.SIGINT else 128 + number)
    assert not any(map(alive, ranks))


def test_a_signal_that_is_ignored_stays_so(bench: CommandLine, family: str, tmp_path: Path) -> None:
    """As under nohup."""
    program = tmp_path / "bin" / f"crosslane_bench_{family}"
    words = bench.words("bench", "gather", "--mpi", family, "--gpus", "emulated:2")
    with begun(words, bench.environment, ignored="HUP") as process:
        ranks = wait_for_ranks(process, 2, program, "gather")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=TIMEOUT_S) == 128 + signal.SIGTERM
    assert not any(map(alive, ranks))


def test_benchmark_that_is_not_built(stand_ins: Path) -> None:
    done = CommandLine(stand_ins)("bench", "allreduce", "--gpus", "emulated:2", "--mpi", "openmpi")
    # The checkout's own build may have it: then it runs against a stand-in, which is no failure of the command line.
    assert "Traceback" not in done.err
    if done.status == 2:
        assert "crosslane_bench_openmpi" in done.err


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", [8]),
        ("8,4k,1m", [8, 4096, 1 << 20]),
        ("8:64", [8, 16, 32, 64]),
        ("12:52", [12, 24, 48]),
        ("4k:16K,4k,1g", [4096, 8192, 16384, 1 << 30]),
    ],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "0", "7", "k", "-4", "8:", "64:8", "8,,16", "4x", "1.5k"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(Problem):
        parse_sizes(text)


@pytest.mark.parametrize(("count", "text"), [(8, "8"), (1024, "1k"), (1536, "1536"), (3 << 20, "3m"), (1 << 30, "1g")])
def test_bytes_are_printed_as_they_are_written(count: int, text: str) -> None:
    assert print_bytes(count) == text
    assert count % 4 or parse_sizes(text) == [count]
