"""HTTP clients: each session, and each pair of principal and name, keeps its endpoint."""

import json
from typing import Any

from portico.core.model.context import Context
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import Session
from portico.core.model.types import Answer
from portico.core.model.version import Version
from portico.edge.fit.exposure_choice import ExposureChoice
from portico.edge.fit.http_endpoint import MAX_NAMES, FittedHttpEndpoint


class Named:
    """An endpoint that answers with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer."""
        return Response(id=b"1", result=self.name.encode())


class Chooser:
    """Chooses by name and version, and counts."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def choose(self, name: str, version: str) -> tuple[Named, ExposureChoice]:
        """Choose."""
        self.asked.append((name, version))
        return Named(f"{name}/{version}"), ExposureChoice("all", "test", name)


def modern(info: Any) -> Request:
    raw = b"" if info is None else json.dumps(info).encode()
    return Request(
        method="tools/list", id=b"1", version=Version.V2026_07_28, meta=Meta(client_info=raw)
    )


def answered(fitted: FittedHttpEndpoint, request: Request, **context: Any) -> bytes:
    answer = fitted.handle(request, Context(**context))
    assert isinstance(answer, Response)
    return answer.result


def test_the_same_pair_gets_the_same_answer_whatever_its_version() -> None:
    fitted = FittedHttpEndpoint(Chooser().choose)
    for version in ("1", "2"):
        assert answered(fitted, modern({"name": "a", "version": version})) == b"a/1"
    assert answered(fitted, modern({"name": "a", "version": "2"}), principal="other") == b"a/2"
    assert answered(fitted, modern({"name": "b", "version": "1"})) == b"b/1"
    for info in (None, 7, {"name": 7}, "a"):
        assert answered(fitted, modern(info)) == b"/"
    assert [choice.client for choice in fitted.choices()] == ["a", "a", "b", ""]


def test_a_client_that_is_known_is_found_by_the_bytes_it_sends() -> None:
    fitted = FittedHttpEndpoint(Chooser().choose)
    request = modern({"name": "a", "version": "1"})
    answered(fitted, request)
    found = fitted.by_client["local", request.meta.client_info]
    assert found.handle(request, Context()) == Response(id=b"1", result=b"a/1")
    large = modern({"name": "a", "version": "1", "title": "x" * 5000})
    assert answered(fitted, large) == b"a/1"
    assert len(fitted.by_client) == 1


def test_made_up_names_fill_no_memory_and_known_clients_are_still_known() -> None:
    fitted = FittedHttpEndpoint(Chooser().choose)
    for number in range(MAX_NAMES + 50):
        answered(fitted, modern({"name": f"x{number}", "version": "1"}))
    assert len(fitted.choices()) == len(fitted.by_client) == MAX_NAMES
    assert answered(fitted, modern({"name": "x1040", "version": "1"})) == b"/"
    assert answered(fitted, modern({"name": "x7", "version": "9"})) == b"x7/1"
    assert answered(fitted, modern({"name": "claude-code", "version": "2"})) == b"claude-code/2"
    assert answered(fitted, modern({"name": "claude-code", "version": "3"})) == b"claude-code/2"


def test_a_session_is_decided_by_its_handshake_and_forgotten_at_its_end() -> None:
    chooser = Chooser()
    fitted = FittedHttpEndpoint(chooser.choose)
    session = Session(lambda message: None)
    early = Request(method="ping", id=b"1")
    assert answered(fitted, early, session=session) == b"/"
    params = json.dumps({"clientInfo": {"name": "a", "version": "1"}}).encode()
    hello = Request(method="initialize", id=b"1", params=params)
    assert answered(fitted, hello, session=session) == b"a/1"
    assert answered(fitted, modern({"name": "b", "version": "1"}), session=session) == b"a/1"
    assert chooser.asked == [("", ""), ("a", "1")]
    assert len(fitted.choices()) == 1
    session.end()
    assert fitted.choices() == []
