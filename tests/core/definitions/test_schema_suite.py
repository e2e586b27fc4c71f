"""The whole JSON Schema test suite for 2020-12, through `Schema`."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest

from portico.core.definitions.schema import Schema, SchemaError
from tests.support.shared import shared

REMOTE = "refers to another document, and Portico never fetches any"
CUSTOM = "has a meta-schema of its own, which is another document too"
ANNOTATION = "wants `format` to be asserted; by default it only annotates (2020-12, 7.2.1)"

# File, group (None: every group), and why. An entry that no longer fails makes the run fail.
EXCLUDED = [
    ("refRemote.json", None, REMOTE),
    ("dynamicRef.json", "strict-tree schema, guards against misspelled properties", REMOTE),
    ("dynamicRef.json", "tests for implementation dynamic anchor and reference link", REMOTE),
    (
        "dynamicRef.json",
        "$ref and $dynamicAnchor are independent of order - $defs first",
        REMOTE,
    ),
    ("dynamicRef.json", "$ref and $dynamicAnchor are independent of order - $ref first", REMOTE),
    ("dynamicRef.json", "$ref to $dynamicRef finds detached $dynamicAnchor", REMOTE),
    (
        "vocabulary.json",
        "schema that uses custom metaschema with with no validation vocabulary",
        CUSTOM,
    ),
    ("vocabulary.json", "ignore unrecognized optional vocabulary", CUSTOM),
    (
        "optional/cross-draft.json",
        "refs to historic drafts are processed as historic drafts",
        REMOTE,
    ),
    ("optional/format-assertion.json", None, CUSTOM),
]
FORMATS = "optional/format/"


class Case(NamedTuple):
    file: str
    group: str
    test: str
    schema: Any
    data: Any
    valid: bool

    @property
    def excluded(self) -> str:
        """Return why a case is expected to differ from the suite, or ""."""
        if self.file.startswith(FORMATS) and not self.valid:
            return ANNOTATION
        for file, group, why in EXCLUDED:
            if self.file == file and group in (None, self.group):
                return why
        return ""

    def passes(self) -> bool:
        try:
            return (Schema(self.schema).problems(self.data) == []) is self.valid
        except SchemaError:
            return False


@cache
def cases() -> list[Case]:
    return list(_cases())


def _cases() -> Iterator[Case]:
    root = shared("corpora/json-schema/draft2020-12")
    for file in sorted(root.rglob("*.json")):
        for group in msgspec.json.decode(file.read_bytes()):
            for test in group["tests"]:
                yield Case(
                    file.relative_to(root).as_posix(),
                    group["description"],
                    test["description"],
                    group["schema"],
                    test["data"],
                    test["valid"],
                )


def test_every_test_of_the_suite_passes_but_the_excluded() -> None:
    failed = [case[:3] for case in cases() if not case.excluded and not case.passes()]

    assert failed == []
    assert len(cases()) >= 2225


def test_what_is_excluded_really_fails() -> None:
    passing = [case[:3] for case in cases() if case.excluded and case.passes()]

    assert passing == []


@pytest.mark.parametrize(("file", "group", "why"), EXCLUDED)
def test_every_exclusion_is_of_something(file: str, group: str | None, why: str) -> None:
    assert any(case.file == file and group in (None, case.group) for case in cases()), why


def test_most_of_the_suite_runs() -> None:
    excluded = [case for case in cases() if case.excluded]
    by_design = [case for case in excluded if case.excluded != ANNOTATION]

    assert len(by_design) <= 54
    assert all(case.file.startswith(FORMATS) for case in excluded if case not in by_design)


def test_a_schema_that_needs_another_document_is_refused_with_the_reason() -> None:
    for case in cases():
        if case.excluded in (REMOTE, CUSTOM):
            with pytest.raises(SchemaError, match=r"never fetched|not a supported dialect"):
                Schema(case.schema).check()
