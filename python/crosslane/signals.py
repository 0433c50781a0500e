"""Signals that end a command: what it started ends with it, as after Ctrl-C."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Makes SystemExit of them, so that whoever waits for a process ends it: by default this one alone would be gone.

    One that is ignored (nohup, a shell's background) stays so; a program that takes this one's place gets the defaults.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, _end)
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)


def as_before_python() -> None:
    """Takes back what Python ignores for itself.

    A program that takes this one's place would inherit it, and write for ever to a reader that has gone.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    for one in _ENDING:  # a terminal that closes sends several, and the first is being followed
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)
