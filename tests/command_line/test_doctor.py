"""`crosslane doctor`: tables and JSON of what the library says; a crash is a finding."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from conftest import HERE, ROOT, TIMEOUT_S, CommandLine, Result, alive, begun, compile_c, wait_for_ranks
from crosslane import child, elf


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
    for words in ("library", "CUDA driver", "compute capability 9.0", "settings", "CROSSLANE_GPU", "usable"):
        assert words in done.out


def test_without_a_program(crosslane: CommandLine) -> None:
    done = crosslane("doctor", "--json", "--gpus", "none")
    assert json.loads(done.out)["family"] in ("openmpi", "mpich")


def doctor_of_stand_in(source: str, folder: Path) -> Result:
    """What doctor says of a library that is made of that."""
    compile_c(source, folder / "libcrosslane_mpich.so", "-shared", "-fPIC")
    return CommandLine(folder)("doctor", "--mpi", "mpich")


def test_usable_gives_status_0_and_an_error_1(stand_ins: Path, tmp_path: Path) -> None:
    done = CommandLine(stand_ins)("doctor", "--mpi", "mpich")
    assert done.status == 0, done.err
    assert "a stand-in" in done.out
    assert ["staged", "2"] in [line.split() for line in done.out.splitlines()]
    source = (HERE / "programs" / "interposed.c").read_text()
    broken = source.replace('\\"severity\\": \\"note\\"', '\\"severity\\": \\"error\\"')
    assert broken != source
    done = doctor_of_stand_in(broken, tmp_path)
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
        ("CROSSLANE_ALLTOALLW", "0-:mpi", "the nearest one is CROSSLANE_ALLTOALLV, by whose routes such calls go"),
        ("CROSSLANE_NEIGHBOR_ALLGATHER", "0-:mpi", "the nearest one is CROSSLANE_ALLTOALLV"),
        ("CROSSLANE_ALLREDUCE", "0-4k", '"0-4k" names no algorithm; write it as <bytes>-<bytes>:<algorithm>'),
        ("CROSSLANE_COPY_BLOCKS", "65536", "expected a number of thread blocks up to 65535"),
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


def test_good_settings_are_shown_beside_wrong_ones(built: CommandLine) -> None:
    wrong = {"CROSSLANE_ALLREDUCE": "0-:lll", "CROSSLANE_SCAN": "foo", "CROSSLANE_CHUNK_BYTES": "-3"}
    report = json.loads(built("doctor", "--json", "--gpus", "emulated:3", CROSSLANE_STATS="1", **wrong).out)
    assert not report["usable"]
    errors = [problem["text"] for problem in report["problems"] if problem["severity"] == "error"]
    assert len(errors) == len(wrong)
    assert all(sum(error.startswith(name) for error in errors) == 1 for name in wrong)
    rows = {row["name"]: (row["value"], row["origin"]) for row in report["settings"]["rows"]}
    assert rows["CROSSLANE_STATS"] == ("1", "environment")
    assert rows["CROSSLANE_GPU"] == ("emulated:3", "environment")
    assert rows["CROSSLANE_CHUNK_BYTES"] == ("2m", "default, as the environment's is refused")
    # The driver that was asked for is looked at, and no other.
    assert len(report["gpus"]) == 3
    assert len(report["ipc"]["opened"]) == 9
    report = json.loads(built("doctor", "--json", CROSSLANE_GPU="emulatd:3").out)
    assert not report["gpus"]
    assert not report["driver"]["found"]
    assert [one["text"].split("=")[0] for one in report["problems"] if one["severity"] == "error"] == ["CROSSLANE_GPU"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("CUDA_ERROR_NO_BINARY_FOR_GPU", "update the NVIDIA driver"),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "update the NVIDIA driver"),
        ("CUDA_ERROR_OUT_OF_MEMORY", "free memory on it"),
    ],
)
def test_gpus_that_take_no_kernels_are_told(built: CommandLine, error: str, remedy: str) -> None:
    fault = f"cuModuleLoadData:*={error}"
    done = built("doctor", "--json", "--gpus", "emulated:2", CROSSLANE_EMULATED_FAULTS=fault)
    report = json.loads(done.out)
    told = [one for one in report["problems"] if one["severity"] == "warning" and error in one["text"]]
    assert [one["text"].split(" takes no kernels")[0] for one in told] == [
        f"GPU {gpu['ordinal']} (compute capability {gpu['capability']})" for gpu in report["gpus"]
    ]
    assert len(told) == 2
    assert all("go through the host" in one["text"] and remedy in one["remedy"] for one in told)
    assert not any(gpu["kernels"] for gpu in report["gpus"])
    report = json.loads(built("doctor", "--json", "--gpus", "emulated:2").out)
    assert all(gpu["kernels"] for gpu in report["gpus"])
    assert "takes no kernels" not in json.dumps(report)


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
        (
            {"CROSSLANE_GPU": "emulated:65"},
            'CROSSLANE_GPU="emulated:65": expected auto, none, or emulated:<GPUs a node, 1',
        ),
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


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        ('{"gpus": [1]}', 'a GPU of "gpus" in FILE must be an object with any of name, pci, numa'),
        ('{"gpus": [{"name": 5}]}', '"name" of a GPU in FILE must be a text'),
        ('{"gpus": [{"numa": "first"}]}', '"numa" of a GPU in FILE must be a node\'s number'),
        ('{"gpus": {}}', '"gpus" in FILE must be a list'),
        ('{"gpus": [{"uuid": "GPU-1"}]}', '"uuid" is no key of a GPU of "gpus" in FILE; there are name, pci, numa'),
        ('{"peers": []}', '"peers" is no key of the object in FILE; there are gpus, peer'),
        ('{"peer": [1, 2]}', '"peer" in FILE must be rows of numbers'),
        ("[]", "the topology file FILE is no JSON object"),
    ],
)
def test_topology_that_is_wrong(built: CommandLine, tmp_path: Path, topology: str, told: str) -> None:
    file = tmp_path / "node.json"
    file.write_text(topology)
    done = built("doctor", "--json", "--gpus", f"emulated:2:{file}")
    assert done.status == 1
    (error,) = [problem for problem in json.loads(done.out)["problems"] if problem["severity"] == "error"]
    assert told.replace("FILE", str(file)) in error["text"]


def test_topology_of_the_document(built: CommandLine, tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "settings.md").read_text(), re.DOTALL)
    file = tmp_path / "node.json"
    file.write_text(text)
    done = built("doctor", "--json", "--gpus", f"emulated:4:{file}")
    report = json.loads(done.out)
    assert done.status == 0, report["problems"]
    assert report["gpus"][0]["name"] == "First"
    access = [
        [bool(rate) or at == to for to, rate in enumerate(row)] for at, row in enumerate(json.loads(text)["peer"])
    ]
    assert report["peer_access"] == access
    apart = sum(1 for at in range(4) for to in range(at) if not (access[at][to] and access[to][at]))
    told = [one["text"] for one in report["problems"] if "peer access to each other" in one["text"]]
    assert told == ([f"{apart} pairs of GPUs have no peer access to each other"] if apart else [])


@pytest.mark.parametrize(("name", "value"), [("CROSSLANE_DISABLE", "1"), ("CROSSLANE_MODE", "passthrough")])
def test_switched_off_is_a_warning(built: CommandLine, name: str, value: str) -> None:
    report = json.loads(built("doctor", "--json", "--gpus", "emulated:2", **{name: value}).out)
    assert report["usable"]
    told = [one for one in report["problems"] if one["text"].startswith(f"{name}={value}: every call is forwarded")]
    assert [(one["severity"], "unset it" in one["remedy"]) for one in told] == [("warning", True)]


def test_hidden_gpus_are_told_by_their_variable(built: CommandLine) -> None:
    report = json.loads(built("doctor", "--json", "--gpus", "emulated:2", CUDA_VISIBLE_DEVICES="5").out)
    (error,) = [problem for problem in report["problems"] if problem["severity"] == "error"]
    assert "shows no GPU to this process (CUDA_VISIBLE_DEVICES is 5)" in error["text"]
    assert error["remedy"] == "set CUDA_VISIBLE_DEVICES to GPUs that exist, or unset it"


def test_procedures_that_the_mpi_lacks_are_not_listed(built: CommandLine, program: Path) -> None:
    report = json.loads(built("doctor", "--json", "--gpus", "none", program).out)
    has = elf.exported_names(Path(report["mpi"]["path"]), "MPI_")
    procedures = {one["procedure"] for one in report["coverage"]}
    assert set(report["lacking"]) == procedures - has
    out = built("doctor", "--gpus", "none", program).out
    for route in ("gpu", "message"):
        listed = re.search(rf"\(route {route}\): (.*?)between GPUs", out, re.DOTALL)
        assert listed
        of_route = {one["procedure"] for one in report["coverage"] if one["route"] == route} & has
        assert set(re.findall(r"MPI_\w+", listed[1])) == of_route


def test_messages_have_a_route_of_their_own(built: CommandLine) -> None:
    report = json.loads(built("doctor", "--json", "--gpus", "none").out)
    routes = {one["procedure"]: one["route"] for one in report["coverage"]}
    for procedure in ("Send", "Isend", "Ssend_init", "Recv", "Irecv", "Recv_init", "Mrecv", "Sendrecv"):
        assert routes["MPI_" + procedure] == "message"
    assert routes["MPI_Bsend"] == "staged"  # into the application's own buffer
    assert routes["MPI_Pack"] == "kernels"
    assert routes["MPI_Win_create"] == "shadowed"


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


def test_values_are_not_markup(built: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "[run1]").mkdir()
    trace = str(tmp_path / "[run1]" / ":x:.json")
    variables = {"CROSSLANE_TRACE": trace, "CUDA_VISIBLE_DEVICES": "0[/x]", "CUDA_MPS_PIPE_DIRECTORY": "/tmp/[/b]"}
    done = built("doctor", "--gpus", "none", **variables, COLUMNS="400")
    assert done.status == 0, done.err
    assert trace in done.out
    assert "0[/x]" in done.out
    # A problem, and the libraries' folder.
    folder = tmp_path / "[/b][red]"
    folder.mkdir(parents=True)
    compile_c(HERE / "programs" / "crashing.c", folder / "libcrosslane_openmpi.so", "-shared", "-fPIC")
    done = CommandLine(folder)("doctor", "--mpi", "openmpi", COLUMNS="400")
    assert done.status == 1
    assert str(folder) in done.out


def test_values_that_are_no_text(built: CommandLine, tmp_path: Path) -> None:
    variables = {"CROSSLANE_TRACE": str(tmp_path / "latin\udce9.json"), "CUDA_VISIBLE_DEVICES": "\udcff"}
    for options in ([], ["--json"]):
        done = built("doctor", "--gpus", "none", *options, **variables)
        assert done.status == 0, done.err
        assert "latin" in done.out


def test_memory_that_cannot_be_allocated_is_told(built: CommandLine) -> None:
    variables = {"CROSSLANE_EMULATED_FAULTS": "cuMemAlloc:*"}
    report = json.loads(built("doctor", "--json", "--gpus", "emulated:2", **variables).out)
    (error,) = [problem for problem in report["problems"] if problem["severity"] == "error"]  # once, for both GPUs
    assert "cuMemAlloc" in error["text"]
    assert not report["usable"]
    done = built("doctor", "--gpus", "emulated:2", **variables)
    assert done.status == 1
    assert "error: cuMemAlloc" in done.out
    assert done.out.endswith("\nnot usable\n")


def test_memory_that_cannot_be_exported_is_told(built: CommandLine) -> None:
    variables = {"CROSSLANE_EMULATED_FAULTS": "cuIpcGetMemHandle:*"}
    report = json.loads(built("doctor", "--json", "--gpus", "emulated:2", **variables).out)
    told = [one["text"] for one in report["problems"] if "cuIpcGetMemHandle" in one["text"]]
    assert [text.split(" cannot be shown")[0] for text in told] == ["memory of GPU 0", "memory of GPU 1"]
    assert report["usable"], "all goes through the host then"
    done = built("doctor", "--gpus", "emulated:2", **variables)
    assert done.status == 0
    assert "warning: memory of GPU 1 cannot be shown to other processes" in done.out


@pytest.mark.parametrize("side", ["export", "import"])
def test_error_that_ends_an_export_or_import_is_told(stand_ins: Path, tmp_path: Path, side: str) -> None:
    assert CommandLine(stand_ins)("doctor", "--mpi", "mpich").status == 0
    source = (HERE / "programs" / "interposed.c").read_text()
    at = source.index(f"crosslane_doctor_{side}_json")
    broken = source[:at] + source[at:].replace('\\"problems\\": []', '\\"error\\": \\"no such luck\\"')
    assert broken != source
    done = doctor_of_stand_in(broken, tmp_path)
    assert done.status == 1
    assert "error: no such luck" in done.out
    assert "not usable" in done.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_child(tmp_path: Path, number: signal.Signals) -> None:
    """A driver may hang in it."""
    source = "#include <unistd.h>\nconst char* crosslane_doctor_json(void) { for (;;) pause(); }"
    library = compile_c(source, tmp_path / "libcrosslane_openmpi.so", "-shared", "-fPIC")
    command = CommandLine(tmp_path)
    with begun(command.words("doctor", "--mpi", "openmpi"), command.environment) as process:
        (started,) = wait_for_ranks(process, 1, sys.executable, "-c", child._PROGRAM, library)
        process.send_signal(number)
        assert process.wait(timeout=TIMEOUT_S) == 128 + number
    assert not alive(started)


def test_library_of_another_version(tmp_path: Path) -> None:
    compile_c("int nothing;", tmp_path / "libcrosslane_openmpi.so", "-shared", "-fPIC")
    done = CommandLine(tmp_path)("doctor", "--mpi", "openmpi")
    assert done.status == 2
    assert "crosslane_doctor_json" in done.err
    assert "remedy" in done.err
