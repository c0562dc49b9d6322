"""What a run of the tests has shown need not be shown again by the next: --passed-to and --except-passed.

In       the reports of a run; a file of names, as an earlier run of the same revision wrote it
Out      the file: the names of tests that passed, a line each; the tests that are not in it
Changes  the file, when a run has ended
Next     .ci/run (a bare environment first, then one with everything, for what was skipped there)
"""

from __future__ import annotations

from pathlib import Path

import pytest


class Passed:
    """Notes the tests that pass. One that fails in its setup or its end has not passed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed: set[str] = set()
        self.not_passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.not_passed.add(report.nodeid)
        elif report.when == "call":
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        names = sorted(self.passed - self.not_passed)
        self.path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


def left(items: list[pytest.Item], path: Path) -> list[pytest.Item]:
    """The tests that are not in the file."""
    passed = set(path.read_text(encoding="utf-8").splitlines())
    return [item for item in items if item.nodeid not in passed]
