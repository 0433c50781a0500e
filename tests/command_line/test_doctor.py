"""`crosslane doctor`: tables and JSON of what the library says; a crash is a finding."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import HERE, CommandLine, compile_c
from crosslane import elf


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


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("CROSSLANE_BROADCAST", "0-:foo", '"foo" is no algorithm for broadcast'),
        ("CROSSLANE_ALLGATHER", "ll@0", "most ranks"),
        ("CROSSLANE_ALLREDUCE", "0-4k:ll;4k-:mpi", "is no algorithm for allreduce"),
        ("CROSSLANE_LOG", "bogus", 'unknown topic "bogus"'),
        ("CROSSLANE_TRACE", "/nonexistent/x", "cannot write /nonexistent/x.0.json"),
        ("CROSSLANE_BCAST", "0-:ll", "the nearest one is CROSSLANE_BROADCAST"),
    ],
)
def test_what_mpi_init_would_refuse_is_an_error(built: CommandLine, name: str, value: str, told: str) -> None:
    done = built("doctor", "--json", "--gpus", "none", **{name: value})
    report = json.loads(done.out)
    assert done.status == 1
    assert not report["usable"]
    error = next(problem["text"] for problem in report["problems"] if problem["severity"] == "error")
    assert name in error
    assert told in error
    assert report["settings"]["error"] == error


def test_all_wrong_settings_are_told(built: CommandLine) -> None:
    done = built("doctor", "--gpus", "none", CROSSLANE_LOG="bogus", CROSSLANE_SCAN="foo", CROSSLANE_TRACE="/no/x")
    for name in ("CROSSLANE_LOG: ", "CROSSLANE_SCAN: ", "CROSSLANE_TRACE: "):
        assert f"error: {name}" in done.out


def test_file_of_a_trace_stays_as_it_is(built: CommandLine, tmp_path: Path) -> None:
    setting = {"CROSSLANE_TRACE": str(tmp_path / "out.json")}
    assert built("doctor", "--gpus", "none", **setting).status == 0
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out.0.json").write_text("of an earlier run")
    assert built("doctor", "--gpus", "none", **setting).status == 0
    assert (tmp_path / "out.0.json").read_text() == "of an earlier run"
    # Switched off, nothing is written.
    assert built("doctor", "--gpus", "none", CROSSLANE_TRACE="/nonexistent/x", CROSSLANE_DISABLE="1").status == 0


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"CROSSLANE_GPU": "emulated:65"}, "CROSSLANE_GPU is 'emulated:65'; give emulated:<1 to 64>"),
        ({"CROSSLANE_GPU": "emulated:2:/nonexistent"}, "cannot read the topology file /nonexistent"),
        ({"CROSSLANE_GPU": "emulated:2", "CROSSLANE_EMULATED_MEMORY": "abc"}, "CROSSLANE_EMULATED_MEMORY is 'abc'"),
    ],
)
def test_the_emulated_driver_says_what_is_wrong(built: CommandLine, variables: dict[str, str], told: str) -> None:
    done = built("doctor", "--json", **variables)
    assert done.status == 1
    (error,) = [problem for problem in json.loads(done.out)["problems"] if problem["severity"] == "error"]
    assert told in error["text"]
    assert "nvidia-smi" not in error["remedy"]


def test_procedures_that_the_mpi_lacks_are_not_listed(built: CommandLine, program: Path) -> None:
    report = json.loads(built("doctor", "--json", "--gpus", "none", program).out)
    has = elf.exported_names(Path(report["mpi"]["path"]), "MPI_")
    procedures = {one["procedure"] for one in report["coverage"]}
    assert set(report["lacking"]) == procedures - has
    listed = re.search(r"\(route gpu\): (.*?)between GPUs", built("doctor", "--gpus", "none", program).out, re.DOTALL)
    assert listed
    assert (
        set(re.findall(r"MPI_\w+", listed[1]))
        == {one["procedure"] for one in report["coverage"] if one["route"] == "gpu"} & has
    )


def test_paths_are_not_cut(stand_ins: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("a_folder_with_a_long_name_" * 4)
    shutil.copytree(stand_ins, folder)
    out = CommandLine(folder)("doctor", "--mpi", "mpich", COLUMNS="80").out
    assert str(folder / "libcrosslane_mpich.so") in re.sub(r"\s+", "", out)
    assert "…" not in out


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
