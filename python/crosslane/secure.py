"""Programs that gain rights when they start: the loader then ignores LD_PRELOAD (ld.so(8), secure-execution mode)."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

_EFFECTIVE = 1  # VFS_CAP_FLAGS_EFFECTIVE of linux/capability.h


def rights_gained(file: Path) -> str:
    """What gives a program that this user starts other rights, by the kernel's own rule; "" where nothing does."""
    status = file.stat()
    if _rights_are_ignored(file):
        return ""
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return f"the set-user-ID bit (of user {status.st_uid})"
    # Without the group's right to execute, the bit once meant locks.
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != os.getgid():
        return f"the set-group-ID bit (of group {status.st_gid})"
    return "file capabilities" if os.getuid() != 0 and _has_capabilities(file) else ""


def _rights_are_ignored(file: Path) -> bool:
    """True where neither bits nor capabilities count: on a file system mounted so, in a container told so."""
    if os.statvfs(file).f_flag & os.ST_NOSUID:
        return True
    try:
        return "NoNewPrivs:\t1\n" in Path("/proc/self/status").read_text(errors="replace")
    except OSError:
        return False


def _has_capabilities(file: Path) -> bool:
    """True if the file brings some: effective at once, or permitted."""
    try:
        stored = os.getxattr(file, "security.capability")
        flags, low = struct.unpack_from("<II", stored)
        high = struct.unpack_from("<I", stored, 12)[0] if len(stored) >= 20 else 0
    except (OSError, struct.error):
        return False
    return bool(flags & _EFFECTIVE or low or high)
