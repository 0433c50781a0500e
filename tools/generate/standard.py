"""The MPI standard's procedures as plain data: names, C signatures (plain and large-count) and what each parameter is.

Source: the machine-readable description of MPI 5.0 that the MPI Forum publishes as PyPI's `pympistandard`. This module
is the only one that knows that package; the generators (functions.py, wrappers.py, routes.py) know this one.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import pympistandard

# Kinds of parameters, in the words of the standard's description.
_BUFFERS = {"BUFFER", "C_BUFFER", "C_BUFFER2", "C_BUFFER3", "C_BUFFER4"}
_COUNTS = {
    "POLYXFER_NUM_ELEM",
    "POLYXFER_NUM_ELEM_NNI",
    "XFER_NUM_ELEM",
    "XFER_NUM_ELEM_NNI",
    "POLYDTYPE_NUM_ELEM",
    "POLYDTYPE_NUM_ELEM_NNI",
    "POLYDTYPE_NUM_ELEM_PI",
    "POLYDTYPE_PACK_SIZE",
    "POLYNUM_BYTES",
    "POLYNUM_BYTES_NNI",
    "POLYNUM_PARAM_VALUES",
}
_DISPLACEMENTS = {"POLYDISPLACEMENT", "POLYDISPLACEMENT_AINT_COUNT", "POLYDISPLACEMENT_COUNT", "POLYRMA_DISPLACEMENT"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a procedure's C form."""

    name: str
    kind: str  # the standard's word, e.g. BUFFER, POLYXFER_NUM_ELEM_NNI, REQUEST, STATUS, MESSAGE, DATATYPE
    direction: str  # in, out or inout, as the standard says for the object behind it
    length: str | None  # of an array: "*" (not said), a number, or another parameter's name; else None
    declaration: str  # in the plain form, e.g. "const int recvcounts[]"; empty if only the large form has it
    large_declaration: str  # in the large-count form; the same as `declaration` where that does not differ
    constant: bool
    asynchronous: bool  # MPI may touch it after the call returns
    root_only: bool  # significant only at the root
    large_only: bool  # in the large-count form only

    @property
    def is_buffer(self) -> bool:
        """True for user memory that data goes to or comes from (not for attribute values and strings)."""
        return self.kind in _BUFFERS

    @property
    def is_array(self) -> bool:
        return self.length is not None

    @property
    def is_count(self) -> bool:
        return self.kind in _COUNTS

    @property
    def is_displacement(self) -> bool:
        return self.kind in _DISPLACEMENTS

    @property
    def is_request(self) -> bool:
        return self.kind == "REQUEST"

    @property
    def is_status(self) -> bool:
        return self.kind == "STATUS"

    @property
    def is_message(self) -> bool:
        return self.kind == "MESSAGE"

    @property
    def is_datatype(self) -> bool:
        return self.kind == "DATATYPE"

    @property
    def type(self) -> str:
        """The C type of the plain form with the name taken out, arrays as pointers: "const int*"."""
        return _type_of(self.declaration, self.name)

    @property
    def large_type(self) -> str:
        return _type_of(self.large_declaration, self.name)

    @property
    def varies(self) -> bool:
        """True if the large-count form has another type here."""
        return not self.large_only and self.type != self.large_type


@dataclass(frozen=True)
class Procedure:
    """One procedure in C. `name` has no MPI_ prefix: it is the member of crosslane::mpi::Functions."""

    name: str
    return_type: str
    all_parameters: tuple[Parameter, ...]  # of the large form; see `parameters` and `large_parameters`
    has_large: bool  # MPI_<name>_c exists
    deprecated: bool

    @property
    def full_name(self) -> str:
        return "MPI_" + self.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those of the plain form, in order."""
        return tuple(p for p in self.all_parameters if not p.large_only)

    @property
    def large_parameters(self) -> tuple[Parameter, ...]:
        """Those of the large-count form, in order."""
        return self.all_parameters

    def arguments(self, large: bool = False) -> str:
        """The parameter list as C, without parentheses: "const void* buf, int count" or "void"."""
        if large and not self.has_large:
            raise ValueError(f"{self.full_name} has no large-count form")
        if large:
            return ", ".join(p.large_declaration for p in self.large_parameters) or "void"
        return ", ".join(p.declaration for p in self.parameters) or "void"

    def signature(self, large: bool = False, prefix: str = "MPI_") -> str:
        """The prototype, e.g. "int MPI_Send_c(const void* buf, MPI_Count count, ...)"."""
        return f"{self.return_type} {prefix}{self.name}{'_c' if large else ''}({self.arguments(large)})"

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name; KeyError if there is none."""
        for candidate in self.all_parameters:
            if candidate.name == name:
                return candidate
        raise KeyError(f"{self.full_name} has no parameter {name}")

    @property
    def buffers(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.all_parameters if p.is_buffer)

    @property
    def takes_buffer(self) -> bool:
        return any(p.is_buffer for p in self.all_parameters)

    @property
    def takes_request(self) -> bool:
        return any(p.is_request for p in self.all_parameters)

    @property
    def takes_status(self) -> bool:
        return any(p.is_status for p in self.all_parameters)

    @property
    def takes_message(self) -> bool:
        return any(p.is_message for p in self.all_parameters)


def _type_of(declaration: str, name: str) -> str:
    """The type alone: "const int recvcounts[]" gives "const int*", "int ranges[][3]" gives "int (*)[3]"."""
    if declaration in ("", "..."):
        return declaration
    match = re.fullmatch(rf"(.*?)\s*\b{re.escape(name)}\b((?:\[\d*\])*)", declaration)
    if match is None:
        raise ValueError(f"cannot read the declaration {declaration!r}")
    base, arrays = match[1].strip(), match[2]
    if not arrays:
        return base
    inner = re.sub(r"^\[\d*\]", "", arrays)
    return f"{base} (*){inner}" if inner else f"{base}*"


def _declaration(expressed) -> str:
    text = str(expressed)
    return "..." if text == r"\ldots" else text


def _length(parseset: dict) -> str | None:
    length = parseset["length"]
    if length is None or length == "":
        return None
    if isinstance(length, (list, tuple)):
        return ",".join(str(part) or "*" for part in length)
    return str(length)


def _procedure(source) -> Procedure:
    parseset = source._parseset  # the package has no public access to lengths and attributes
    has_large = source.has_embiggenment()
    plain = {p.name: _declaration(p) for p in source.express.iso_c.parameters}
    large_form = source.express.embiggen.iso_c if has_large else source.express.iso_c
    by_name = {p["name"]: p for p in parseset["parameters"]}
    parameters = []
    for expressed in large_form.parameters:
        facts = by_name[expressed.name]
        declaration = plain.get(expressed.name, "")
        parameters.append(
            Parameter(
                name=expressed.name,
                kind=facts["kind"],
                direction=facts["param_direction"],
                length=_length(facts),
                declaration=declaration,
                large_declaration=_declaration(expressed),
                constant=bool(facts["constant"]),
                asynchronous=bool(facts["asynchronous"]),
                root_only=bool(facts["root_only"]),
                large_only=declaration == "",
            )
        )
    if [p.name for p in parameters if not p.large_only] != list(plain):
        raise ValueError(f"{parseset['name']}: the two forms differ in more than additional parameters")
    return Procedure(
        name=parseset["name"].removeprefix("MPI_"),
        return_type=str(source.express.iso_c.return_type),
        all_parameters=tuple(parameters),
        has_large=has_large,
        deprecated=bool(parseset["attributes"]["deprecated"]),
    )


@functools.cache
def procedures() -> tuple[Procedure, ...]:
    """All procedures of MPI 5.0 that an MPI library exports to C, by name.

    Left out: the tools interface (MPI_T_*: it takes no buffer and no request), what only Fortran has, and the
    conversions to and from Fortran handles and statuses (macros in MPICH).
    """
    pympistandard.use_api_version(1)
    found = []
    for source in pympistandard.PROCEDURES.values():
        parseset = source._parseset
        name = parseset["name"]
        if not parseset["attributes"]["c_expressible"] or not name.startswith("MPI_") or name.startswith("MPI_T_"):
            continue
        if parseset["attributes"]["predefined_function"] or parseset["attributes"]["callback"]:
            continue
        if re.search(r"_(c2f|f2c|c2f08|f082c|f082f|f2f08)$", name):
            continue
        found.append(_procedure(source))
    return tuple(sorted(found, key=lambda procedure: procedure.name))


def procedure(name: str) -> Procedure:
    """The procedure of that name, with or without MPI_; KeyError if there is none."""
    short = name.removeprefix("MPI_")
    for candidate in procedures():
        if candidate.name == short:
            return candidate
    raise KeyError(f"MPI 5.0 has no C procedure MPI_{short}")
