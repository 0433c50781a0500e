"""`crosslane doctor`: tables and JSON of what the library says; a crash is a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import HERE, CommandLine, compile_c


@pytest.mark.parametrize("gpus", [["--gpus", "emulated:2"], ["--gpus", "none"]])
def test_json_has_every_part(crosslane: CommandLine, family: str, program: Path, gpus: list[str]) -> None:
    done = crosslane("doctor", "--json", *gpus, program)
    report = json.loads(done.out)
    assert done.status == (0 if report["usable"] else 1)
    assert report["family"] == family
    assert {
        "settings",
        "driver",
        "gpus",
        "peer_access",
        "mps",
        "process",
        "mpi",
        "problems",
        "library",
    } <= report.keys()
    assert all({"severity", "text", "remedy"} <= problem.keys() for problem in report["problems"])
    if report["gpus"]:
        owners = {gpu["uuid"] for gpu in report["gpus"]}
        assert {one["exporter"] for one in report["ipc"]["opened"]} == owners
        assert all(one["ok"] for one in report["ipc"]["opened"] if one["exporter"] == one["importer"])


def test_tables(crosslane: CommandLine, program: Path) -> None:
    done = crosslane("doctor", "--gpus", "emulated:2", program)
    assert done.status in (0, 1), done.err
    assert "Traceback" not in done.err
    for words in ("library", "CUDA driver", "settings", "CROSSLANE_GPU", "usable"):
        assert words in done.out


def test_without_a_program(crosslane: CommandLine) -> None:
    done = crosslane("doctor", "--json", "--gpus", "none")
    assert json.loads(done.out)["family"] in ("openmpi", "mpich")


def test_usable_gives_status_0_and_an_error_1(stand_ins: Path, tmp_path: Path) -> None:
    done = CommandLine(stand_ins)("doctor", "--mpi", "mpich")
    assert done.status == 0, done.err
    assert "a stand-in" in done.out
    assert ["staged", "2"] in [line.split() for line in done.out.splitlines()]
    source = (HERE / "programs" / "interposed.c").read_text()
    broken = source.replace('\\"severity\\": \\"note\\"', '\\"severity\\": \\"error\\"')
    assert broken != source
    compile_c(broken, tmp_path / "libcrosslane_mpich.so", "-shared", "-fPIC")
    done = CommandLine(tmp_path)("doctor", "--mpi", "mpich")
    assert done.status == 1
    assert "not usable" in done.out
    assert "build the library" in done.out


def test_crash_is_a_finding(tmp_path: Path) -> None:
    compile_c(HERE / "programs" / "crashing.c", tmp_path / "libcrosslane_openmpi.so", "-shared", "-fPIC")
    done = CommandLine(tmp_path)("doctor", "--mpi", "openmpi")
    assert done.status == 1
    assert "SIGSEGV" in done.out
    assert "Traceback" not in done.err


def test_library_of_another_version(tmp_path: Path) -> None:
    compile_c("int nothing;", tmp_path / "libcrosslane_openmpi.so", "-shared", "-fPIC")
    done = CommandLine(tmp_path)("doctor", "--mpi", "openmpi")
    assert done.status == 2
    assert "crosslane_doctor_json" in done.err
    assert "remedy" in done.err
