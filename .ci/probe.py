"""A plugin for pytest that counts the processor's seconds and the compiled programs of each test.

PYTHONPATH=.ci python -m pytest -p probe --limits .ci/sizes.json

It prints the dearest tests, and the sums of each folder; with ``--limits`` the run fails above the
seconds and programs that the file allows for all tests, or the programs that it allows for a file.
"""

import collections
import json
import os
import pathlib
import resource

import jax
import pytest

_programs = 0
_before = (0.0, 0)  # seconds and programs of this process, at the end of the last test
_tests: dict[str, tuple[float, int]] = {}
_processes: dict[int, float] = {}


def _count(event: str, *_: object, **__: object) -> None:
    global _programs
    _programs += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(_count)


def _seconds(children: bool = True) -> float:
    """Processor time of this process, and of its children that have ended."""
    whose = [resource.RUSAGE_SELF] + [resource.RUSAGE_CHILDREN] * children
    return sum(sum(resource.getrusage(who)[:2]) for who in whose)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Without limits nothing fails."""
    parser.addoption("--limits", type=pathlib.Path, help="a file with limits for the probe")


def pytest_collection_finish() -> None:
    """Imports and collection count as seconds of the process, and as no test's."""
    global _before
    _before = _seconds(), _programs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """The last report of a test carries its numbers, from a worker to the controller, too."""
    global _before
    report = yield
    if call.when == "teardown":
        now = _seconds(), _programs
        report.user_properties.append(("probe", (os.getpid(), *now, *_before)))
        _before = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect them."""
    for process, seconds, programs, *before in (
        value for name, value in report.user_properties if name == "probe"
    ):
        _processes[process] = seconds
        _tests[report.nodeid] = (seconds - before[0], programs - before[1])


def _dear(item: tuple[str, tuple[float, int]]) -> float:
    return -item[1][0]


def _sums(length: int) -> dict[str, tuple[float, int]]:
    """Seconds and programs by the first parts of the tests' paths."""
    sums = collections.defaultdict(lambda: (0.0, 0))
    for name, (seconds, programs) in _tests.items():
        group = "/".join(name.split("::")[0].split("/")[:length])
        sums[group] = (sums[group][0] + seconds, sums[group][1] + programs)
    return sums


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Print the numbers and compare them with the limits, where all of them are."""
    if hasattr(session.config, "workerinput") or not _tests:
        return
    workers = [seconds for process, seconds in _processes.items() if process != os.getpid()]
    cpu = sum(workers) + _seconds(children=not workers)
    programs, files = sum(number for _, number in _tests.values()), _sums(9)
    print(f"\n\n{cpu:.0f} s of processor time and {programs} programs, of which")
    folders, dear = sorted(_sums(2).items()), lambda sums: sorted(sums.items(), key=_dear)[:25]
    for name, (seconds, number) in [*folders, *dear(files), *dear(_tests)]:
        print(f"{seconds:8.1f} s {number:6d}  {name}")
    path = session.config.getoption("limits")
    if path is None:
        return
    limits = json.loads(path.read_text())
    over = [f"{cpu:.0f} s of {limits['seconds']}"] * (cpu > limits["seconds"])
    over += [f"{programs} programs of {limits['programs']}"] * (programs > limits["programs"])
    for name, (_, number) in files.items():
        allowed = limits["programs of files"].get(name, limits["programs of a file"])
        over += [f"{name}: {number} programs of {allowed}"] * (number > allowed)
    for line in over:
        print(f"above a limit: {line}")
    if over:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
