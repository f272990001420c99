r"""A plugin for pytest that writes down what a run skipped, for a run where the extras are there.

PYTHONPATH=.ci python -m pytest -p skipped --skipped FILE
xargs -d '\n' python -m pytest < FILE
"""

import pathlib

import pytest

_skipped: dict[str, None] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Without a file nothing is written."""
    parser.addoption("--skipped", type=pathlib.Path, help="a file for the names of skipped tests")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the name of a test."""
    if report.skipped:
        _skipped[report.nodeid] = None


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep the name of a file that skips as a whole."""
    if report.skipped:
        _skipped[report.nodeid] = None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write all names, a line each; workers leave it to the controller."""
    path = session.config.getoption("skipped")
    if path is not None and not hasattr(session.config, "workerinput"):
        path.write_text("".join(f"{name}\n" for name in _skipped))
