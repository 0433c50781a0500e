"""Tests the rules themselves: each must find what is planted, and leave what only looks like it."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import binaries
import pytest
import rules

Rule = Callable[[Path], Iterator[str]]

# rule, file, a line that breaks it, a line that does not
CASES: list[tuple[Rule, str, str, str]] = [
    (rules.folder_order, "src/gpu/a.h", '#include "engine/task.h"', '#include "gpu/b.h"'),
    (rules.folder_order, "src/base/a.h", "#include <mpi/table.h>", "#include <vector>"),
    (rules.folder_order, "src/lane/a.h", '#include "copier.h"', '#include "share/x.h"'),
    (rules.folder_order, "src/nowhere/a.h", "int x;", ""),
    (rules.folder_order, "include/crosslane/a.h", '#include "base/error.h"', '#include "crosslane/b.h"'),
    (rules.folder_order, "src/gpu/a.h", '#  include "engine/task.h"  // why', '// #include "engine/task.h"'),
    (rules.mpi_calls, "src/team/a.cpp", "MPI_Barrier(comm);", "functions.Barrier(comm);"),
    (rules.mpi_calls, "src/team/a.cpp", "auto r = PMPI_Send (p);", "// MPI_Send(p)"),
    (rules.mpi_calls, "src/team/a.cpp", "MPIX_Query_cuda_support();", 'log("MPI_Send() failed");'),
    (rules.cuda_calls, "src/lane/a.cpp", "cuMemcpyAsync(a, b, n, s);", "current(x); /* cuMemAlloc(p) */"),
    (rules.cuda_calls, "src/lane/a.cpp", "table.cuMemAlloc(&p);", "cursor(1);"),
    (rules.cuda_calls, "src/gpu/a.cpp", "cudaMalloc(&p, 1);", "cuMemAlloc(&p, 1);"),
    (rules.cuda_calls, "src/gpu/emulated/a.cpp", "cudaMalloc(&p, 1);", "cuMemAlloc(&p, 1);"),
    (rules.cuda_calls, "src/kernel/a.cu", "copy<<<1, 2>>>(p);", "cuda::atomic_ref<int> a(x);"),
    (rules.mpi_header, "src/lane/a.h", "#include <mpi.h>", '#include "mpi/table.h"'),
    (rules.platform_conditions, "src/lane/a.h", "#ifdef __CUDA_ARCH__", "#ifdef __COMPILER_VERSION"),
    (rules.platform_conditions, "src/team/a.h", "#if \\\n defined(CROSSLANE_ABI_MPICH)", "#if defined(NDEBUG)"),
    (rules.platform_conditions, "src/kernel/copy.h", "#if defined(__CUDACC__)", "// #if __CUDACC__"),
    (rules.platform_conditions, "src/engine/a.h", "#elif SMPI", "#endif  // SMPI"),
    (rules.blocking, "src/lane/a.cpp", "std::this_thread::sleep_for(1ms);", "// sleep_for(1ms)"),
    (rules.blocking, "src/lane/a.cpp", "usleep(3);", "int usleeper;"),
    (rules.blocking, "src/share/a.h", "std::condition_variable ready_;", "co_await ready;"),
    (rules.blocking, "src/lane/a.cpp", "functions.Waitall(n, r, s);", "functions.Testall(n, r, f, s);"),
    (rules.blocking, "src/lane/a.cpp", "table->Mprobe(a);", "table->Improbe(a);"),
    (rules.blocking, "src/lane/a.cpp", "thread_.join();", "engine.wait(done);"),
    (rules.blocking, "src/lane/a.cpp", "helper_threads_->join();", "directory_->join(node);"),
    (rules.blocking, "src/team/a.cpp", "word.wait(0);", "process.engine().wait(done);"),
    (rules.blocking, "src/team/a.cpp", "sched_yield();", "co_yield value;"),
    (rules.stream_synchronise, "src/gpu/a.cpp", "table.StreamSynchronize(s);", "// StreamSynchronize"),
    (rules.stream_synchronise, "src/gpu/a.h", "decltype(&cuCtxSynchronize) f;", "bool synchronised;"),
    (rules.stream_synchronise, "src/gpu/a.h", "driver.event_synchronize(e);", "driver.stream_wait_event(s, e);"),
    (rules.macro_names, "src/gpu/a.h", "#define CHECK(x) x", "#define CROSSLANE_CHECK(x) x"),
    (rules.macro_names, "include/crosslane/a.h", "#  define HERE", "#undef HERE"),
    (rules.macro_names, "bench/operation/a.cpp", "#define M 1", "#define _GNU_SOURCE"),
    (rules.opening_comment, "src/gpu/a.h", "", "int x;"),
]


def plant(root: Path, file: str, text: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("rule", "file", "bad", "good"), CASES)
def test_rule_finds_what_is_planted(tmp_path: Path, rule: Rule, file: str, bad: str, good: str) -> None:
    opening = "" if rule is rules.opening_comment else "// A file.\n"
    plant(tmp_path, file, f"{opening}#pragma once\n{bad}\n")
    found = list(rule(tmp_path))
    assert len(found) == 1, found
    assert found[0].startswith(f"{file}:")
    if file.startswith("src/nowhere"):
        return
    plant(tmp_path, file, f"// A file.\n#pragma once\n{good}\n")
    assert list(rule(tmp_path)) == []


@pytest.mark.parametrize(
    ("rule", "file", "line"),
    [
        (rules.mpi_calls, "src/interpose/a.cpp", "MPI_Send(p);"),
        (rules.mpi_calls, "src/mpi/a.cpp", "PMPI_Send(p);"),
        (rules.mpi_header, "src/api/a.cpp", "#include <mpi.h>"),
        (rules.platform_conditions, "src/kernel/block.h", "#ifdef __CUDACC__"),
        (rules.platform_conditions, "src/kernel/copy.cu", "#ifdef __CUDACC__"),
        (rules.platform_conditions, "src/mpi/abi.h", "#ifdef CROSSLANE_ABI_MPICH"),
        (rules.blocking, "src/engine/wait.cpp", "sched_yield();"),
        (rules.blocking, "src/gpu/emulated/stream.cpp", "std::condition_variable c;"),
        (rules.stream_synchronise, "src/gpu/emulated/stream.cpp", "CUresult cuStreamSynchronize(CUstream s) {"),
    ],
)
def test_rule_knows_its_own_ground(tmp_path: Path, rule: Rule, file: str, line: str) -> None:
    plant(tmp_path, file, f"// A file.\n{line}\n")
    assert list(rule(tmp_path)) == []


def test_line_numbers_survive_comments_and_raw_strings(tmp_path: Path) -> None:
    plant(
        tmp_path,
        "src/team/a.cpp",
        "/* one\n   MPI_Send(x) */\nauto s = R\"(MPI_Send(\n))\";\nchar c = '\"'; int n = 1'000; MPI_Recv(x);\n",
    )
    assert [line.split(":")[1] for line in rules.mpi_calls(tmp_path)] == ["5"]


def test_scripts_open_with_a_comment(tmp_path: Path) -> None:
    plant(tmp_path, "cmake/A.cmake", "set(x 1)\n")
    plant(tmp_path, "tools/run", "#!/bin/sh\nset -e\n")
    plant(tmp_path, "tests/a/CMakeLists.txt", "# What it is.\n")
    plant(tmp_path, "build/x/CMakeLists.txt", "set(x 1)\n")
    assert sorted(line.split(":")[0] for line in rules.opening_comment(tmp_path)) == ["cmake/A.cmake", "tools/run"]


def test_every_exception_has_a_reason() -> None:
    for file, columns in (("globals.txt", 2), ("macros.txt", 2), ("blocking.txt", 3)):
        for row in rules.rows(file):
            assert len(row) == columns, f"{file}: {row}"
            assert len(row[-1]) > 10, f"{file}: {row}: no reason given"


def compiled(tmp_path: Path, text: str) -> Path:
    plant(tmp_path, "a.cpp", text)
    output = tmp_path / "a.o"
    subprocess.run(
        ["g++", "-std=c++20", "-fPIC", "-fno-gnu-unique", "-c", tmp_path / "a.cpp", "-o", output], check=True
    )
    return output


WRITABLE = {
    "zero": "namespace crosslane { int counter; }",
    "initialised": "namespace crosslane { int counter = 3; }",
    "internal": "namespace { int counter = 3; } int* at() { return &counter; }",
    "local": "int next() { static int counter = 0; return ++counter; }",
    "thread": "thread_local int counter; int* at() { return &counter; }",
    "inline": "inline int counter = 2; int* at() { return &counter; }",
    "member": "struct Box { static int counter; }; int Box::counter = 1;",
    "template": "template <class T> struct Box { static inline T counter{}; }; int& at() { return Box<int>::counter; }",
}


@pytest.mark.parametrize("text", WRITABLE.values(), ids=WRITABLE)
def test_writable_global_is_found(tmp_path: Path, text: str) -> None:
    found = list(binaries.writable_globals([compiled(tmp_path, text)], allowed=[]))
    assert len(found) == 1, found
    assert "counter" in found[0]
    assert list(binaries.writable_globals([tmp_path / "a.o"], allowed=[["counter", "planted"]])) == []


def test_constants_are_no_writable_globals(tmp_path: Path) -> None:
    text = """
      struct Shape { virtual ~Shape() = default; virtual int sides() const { return 3; } };
      Shape* make() { return new Shape; }
      constexpr const char* names[] = {"one", "two"};
      extern const char* const* const table = names;
      void fail() { try { throw 1; } catch (int) { } }
    """
    assert list(binaries.writable_globals([compiled(tmp_path, text)], allowed=[])) == []


def test_exports_needs_and_flags_are_read(tmp_path: Path) -> None:
    source = tmp_path / "b.cpp"
    source.write_text(
        '#include <string>\nextern "C" int MPI_Send() { return 0; }\nextern "C" int helper() { return 0; }\n'
        "std::string crosslane_text(int n) { return std::to_string(n); }\n"
        'extern "C" int crosslane_version() { return 1; }\n'
    )
    library = tmp_path / "libb.so"
    subprocess.run(["g++", "-fPIC", "-shared", source, "-o", library], check=True)
    exported = "\n".join(binaries.exported_names(library))
    assert "exports helper" in exported
    assert "crosslane_text" in exported  # a C++ name is mangled: not one of ours to export
    assert "exports MPI_Send" not in exported
    assert "exports crosslane_version" not in exported
    assert any("libstdc++" in line for line in binaries.needed_libraries(library))
    assert list(binaries.missing_flags(library))
    strict = tmp_path / "libc_only.so"
    version = tmp_path / "map"
    version.write_text("{ global: MPI_*; crosslane_*; local: *; };")
    flags = ["-static-libstdc++", "-static-libgcc", "-Wl,-z,nodelete", f"-Wl,--version-script={version}"]
    subprocess.run(["g++", "-fPIC", "-shared", source, "-o", strict, *flags], check=True)
    for rule in (binaries.exported_names, binaries.needed_libraries, binaries.missing_flags):
        assert list(rule(strict)) == []
