"""What the command line cannot do, with the remedy. Every failure that a user can meet is one of these."""


class Problem(Exception):  # noqa: N818 - what a user has, not what the code got wrong
    """A failure: what is wrong, what to do about it, and the exit status (126 and 127 as a shell gives them)."""

    def __init__(self, text: str, remedy: str, status: int = 2) -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy
        self.status = status
