"""Tests of tensors under a sanitizer (--emulate GPU --sanitize memory,race): one whose kernels leave a finding fails.

In       the words of HCQ_SANITIZE; the tests, one after the other
Out      failures that name the findings
Next     conftest.py (the option), hcq/observe/sanitizer.py (findings)
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


class WithoutFindings:
    """Looks at the findings that each test adds."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        from hcq.observe.sanitizer import Sanitizer

        before = len(Sanitizer.findings)
        result = yield
        found = Sanitizer.findings[before:]
        if found:
            raise AssertionError("\n".join([f"{len(found)} findings of the sanitizer", *map(str, found)]))
        return result
