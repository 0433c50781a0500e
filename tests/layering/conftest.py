"""What the layering tests need of the command line: the build folder whose libraries are read."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --build."""
    parser.addoption("--build", type=Path, default=None, help="a release build folder, for the rules on what was built")


@pytest.fixture(scope="session")
def build(request: pytest.FixtureRequest) -> Path:
    """The build folder; tests that need one are skipped without it."""
    folder = request.config.getoption("--build")
    if folder is None:
        pytest.skip("no --build folder given")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the source tree."""
    return Path(__file__).resolve().parent.parent.parent
