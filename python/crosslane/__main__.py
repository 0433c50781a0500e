"""`python -m crosslane`: the same command line where the console script is not on the PATH."""

from crosslane.cli import app

app(prog_name="crosslane")
