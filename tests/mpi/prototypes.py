"""Compares our prototypes with the real header's: prototypes.py <MPI compiler wrapper> <folder of standard.py>.

Every procedure that the header declares must have the type that standard.py gives it, in the header's own types.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Headers that leave out a const; the binary interface is the same.
KNOWN = {"MPI_Info_create_env", "MPI_Pready_list"}
FEWEST = 350  # Open MPI 4.1 declares 352 of them

HEADER = "#define OMPI_SKIP_MPICXX\n#define MPICH_SKIP_MPICXX\n#include <mpi.h>\n"


def main() -> None:
    """Compiles one static_assert a procedure and reports those that fail."""
    wrapper, folder = sys.argv[1:]
    sys.path.insert(0, folder)
    import standard  # noqa: PLC0415 - its folder is an argument

    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "prototypes.cpp"
        source.write_text(HEADER)
        header = subprocess.run([wrapper, "-E", "-x", "c++", source], capture_output=True, text=True, check=True).stdout
        lines = [*HEADER.splitlines(), "#include <type_traits>"]
        names = {}
        for procedure in standard.procedures():
            for large in (False, True) if procedure.has_large else (False,):
                name = procedure.full_name + ("_c" if large else "")
                if re.search(rf"\b{name}\s*\(", header):
                    pointer = f"{procedure.return_type} (*ours)({procedure.arguments(large)})"
                    same = "std::is_same_v<decltype(ours), decltype(&P" + name + ")>"
                    lines.append(f"namespace of_{name} {{ extern {pointer}; static_assert({same}); }}")
                    names[len(lines)] = name
        source.write_text("\n".join(lines) + "\n")
        result = subprocess.run(
            [wrapper, "-x", "c++", "-std=c++20", "-w", "-fmax-errors=0", "-c", source, "-o", "/dev/null"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    failed = {
        names.get(int(line), "(elsewhere)") for line in re.findall(r"prototypes.cpp:(\d+):\d+: error", result.stderr)
    }
    print(f"{len(names)} prototypes compared; different: {sorted(failed) or 'none'}; known: {sorted(KNOWN)}")
    if len(names) < FEWEST or failed - KNOWN or (result.returncode != 0 and not failed):
        sys.exit(f"prototypes differ from {wrapper}'s header\n{result.stderr[:4000]}")


if __name__ == "__main__":
    main()
