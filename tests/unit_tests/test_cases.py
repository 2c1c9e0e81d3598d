"""The cases in `tests/cases/`: what has to hold, whoever wrote the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"cases/(\w+)\.md ((?:\d+b?(?:, | and )?)+)")


def sentences() -> Iterator[str]:
    """The docstring of each test."""
    for path in TESTS.glob("*_tests/test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "test_" in node.name:
                yield ast.get_docstring(node) or ""


def test_each_case_is_named_by_a_test():
    """And no test names a case that is not there."""
    cases = {
        (path.stem, number)
        for path in (TESTS / "cases").glob("*.md")
        for number in re.findall(r"^(\d+b?)\. ", path.read_text("utf-8"), re.MULTILINE)
    }
    named = {
        (name, number)
        for sentence in sentences()
        for name, numbers in NAMED.findall(sentence)
        for number in re.findall(r"\d+b?", numbers)
    }
    assert named == cases
