"""Reads C++ sources for the rules: comments and literals blanked, line numbers kept. It knows no rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SUFFIXES = {".h", ".hpp", ".cuh", ".c", ".cpp", ".cu", ".inc"}

# One alternative a lexical element that may hide text from a rule; raw strings first, they contain the others.
_HIDDEN = re.compile(
    r"""(?P<raw>R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")"""
    r"""|(?P<block>/\*.*?\*/)|(?P<line>//(?:\\\n|[^\n])*)"""
    r"""|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')""",
    re.DOTALL,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


@dataclass(frozen=True)
class Include:
    """One #include: its line, what it names, and whether it is in quotation marks."""

    line: int
    name: str
    quoted: bool


@dataclass(frozen=True)
class Source:
    """One file of the tree, with its path below the tree's root."""

    root: Path
    path: Path

    @property
    def folder(self) -> str:
        """The first folder below src/, or an empty string outside src/."""
        return self.path.parts[1] if len(self.path.parts) > 2 and self.path.parts[0] == "src" else ""

    @property
    def below_src(self) -> str:
        """The path below src/ in POSIX form; the whole path outside src/."""
        parts = self.path.parts
        return "/".join(parts[1:] if parts[0] == "src" else parts)

    @cached_property
    def text(self) -> str:
        return (self.root / self.path).read_text(encoding="utf-8")

    @cached_property
    def code(self) -> list[str]:
        """The lines with comments and literals blanked."""
        return _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), self.text).split("\n")

    @cached_property
    def directives(self) -> list[tuple[int, str]]:
        """Preprocessor lines with their continuations joined, each with the number of its first line."""
        found, joined, start = [], "", 0
        for number, line in enumerate(self.code, 1):
            if joined:
                joined += " " + line
            elif line.lstrip().startswith("#"):
                joined, start = line, number
            if joined and not joined.rstrip().endswith("\\"):
                found.append((start, joined))
                joined = ""
            joined = joined.rstrip().removesuffix("\\")
        return found

    @cached_property
    def includes(self) -> list[Include]:
        # A name in quotation marks is a literal: read from the text, on the lines that are directives in the code.
        lines = self.text.split("\n")
        found = []
        for number, _ in self.directives:
            match = _INCLUDE.match(lines[number - 1])
            if match:
                found.append(Include(number, match[1] or match[2], match[1] is not None))
        return found

    def matches(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        """Every match of a pattern in the code, with its line's number."""
        for number, line in enumerate(self.code, 1):
            for match in pattern.finditer(line):
                yield number, match


def sources(root: Path, *folders: str) -> list[Source]:
    """The C and C++ sources below the named folders of a tree."""
    found = []
    for folder in folders:
        found += [
            Source(root, path.relative_to(root))
            for path in sorted((root / folder).rglob("*"))
            if path.suffix in SUFFIXES and path.is_file()
        ]
    return found
