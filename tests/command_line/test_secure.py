"""Programs that gain rights when they start: the loader ignores LD_PRELOAD, which is said before."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
from conftest import CommandLine
from crosslane import secure

NOBODY = 65534


def marked(program: Path, mode: int, *, user: int = -1, group: int = -1) -> None:
    """Gives a program away and sets its bits; skips the test where one must not, or where they do not count."""
    try:
        os.chown(program, user, group)
        program.chmod(mode)
    except PermissionError:
        pytest.skip("only root may give files away")
    if not secure.rights_gained(program):
        pytest.skip("the file system, or a container's rule, ignores such bits")


@pytest.fixture
def copy(program: Path, tmp_path: Path) -> Path:
    """A program of a user, to be changed."""
    return Path(shutil.copy(program, tmp_path / "program"))


@pytest.mark.parametrize(
    ("mode", "whose", "told"), [(0o4755, "user", "set-user-ID bit"), (0o2755, "group", "set-group-ID bit")]
)
def test_bits(crosslane: CommandLine, family: str, copy: Path, *, mode: int, whose: str, told: str) -> None:
    assert crosslane.refuse("preload", copy).status == 0
    marked(copy, mode, **{whose: NOBODY})
    for words in (["run"], ["run", "-n", 2], ["preload"], ["run", "--mpi", family]):
        done = crosslane.refuse(*words, copy)
        assert done.status == 2
        assert done.out == ""
        assert told in done.err
        assert "ignores LD_PRELOAD" in done.err
        assert f"-lcrosslane_{family}" in done.err


def test_doctor_reports_the_rest_too(built: CommandLine, copy: Path) -> None:
    marked(copy, 0o4755, user=NOBODY)
    done = built("doctor", "--json", "--gpus", "none", copy)
    report = json.loads(done.out)
    assert done.status == 1
    assert not report["usable"]
    (error,) = [one for one in report["problems"] if one["severity"] == "error"]
    assert "ignores LD_PRELOAD" in error["text"]
    assert report["mpi"]["loaded"]


def test_bits_that_change_nothing(crosslane: CommandLine, copy: Path) -> None:
    """A set-user-ID program of one's own, and a set-group-ID bit without the group's right to execute."""
    copy.chmod(0o6755)
    assert crosslane.refuse("preload", copy).status == 0
    copy.chmod(0o2745)
    assert crosslane.refuse("preload", copy).status == 0


@pytest.mark.parametrize(
    ("flags", "permitted", "ignored"), [(1, 1 << 13, True), (0, 1 << 13, True), (1, 0, True), (0, 0, False)]
)
def test_capabilities(
    crosslane: CommandLine, copy: Path, monkeypatch: pytest.MonkeyPatch, *, flags: int, permitted: int, ignored: bool
) -> None:
    """Of a user: root has them all. What setcap writes is version 2: flags, then permitted and inheritable, twice."""
    stored = struct.pack("<IIIII", 0x02000000 | flags, permitted, 0, 0, 0)
    try:
        os.setxattr(copy, "security.capability", stored)
    except OSError as error:
        pytest.skip(f"no file capabilities here: {error.strerror}")
    monkeypatch.setattr(secure, "_rights_are_ignored", lambda _: False)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert crosslane.refuse("preload", copy).status == 0
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    done = crosslane.refuse("preload", copy)
    assert done.status == (2 if ignored else 0)
    assert ("by file capabilities" in done.err) == ignored
