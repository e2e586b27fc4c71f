"""The inbound ladder: era, version, headers against body, required metadata."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.model.message import Request
from portico.core.model.offer import HeaderParam
from portico.core.model.version import LATEST_LEGACY, LEGACY, Version, negotiate
from portico.core.protocol.inbound import RefusedMessage, read
from portico.core.protocol.ladder import check_header_params, decode_header, encode_header

PREFIX = "io.modelcontextprotocol/"
META = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}
HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


def message(method: str = "tools/list", **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def code_of(inbound: object) -> int:
    assert isinstance(inbound, RefusedMessage)
    return inbound.response.code


def test_metadata_makes_a_request_modern_even_on_a_legacy_session() -> None:
    request = read(message(_meta=META), Version.V2025_06_18)
    assert isinstance(request, Request)
    assert request.version is Version.V2026_07_28
    assert request.meta.client_capabilities == b"{}"


def test_a_legacy_request_is_served_in_its_sessions_version() -> None:
    request = read(message(), Version.V2025_03_26)
    assert isinstance(request, Request)
    assert request.version is Version.V2025_03_26


def test_a_legacy_request_before_initialize_is_refused_but_ping_is_not() -> None:
    assert code_of(read(message(), None)) == -32600
    assert isinstance(read(message("ping"), None), Request)
    assert isinstance(read(message("initialize"), None), Request)


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_a_modern_request_without_required_metadata_is_invalid(missing: str) -> None:
    meta = {key: value for key, value in META.items() if key != PREFIX + missing}
    assert code_of(read(message("server/discover", _meta=meta), None)) == -32602


def test_a_request_without_client_info_is_served() -> None:
    assert isinstance(read(message("server/discover", _meta=META), None), Request)


@pytest.mark.parametrize("version", ["v999", "1900-01-01", "2025-11-25", ""])
def test_an_unsupported_modern_version_is_told_which_are_supported(version: str) -> None:
    refused = read(message(_meta={**META, PREFIX + "protocolVersion": version}), None)
    assert isinstance(refused, RefusedMessage)
    error = refused.response.decode()["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": version}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"mcp-protocol-version": "2026-07-28"},
        {**HEADERS, "mcp-method": "tools/call"},
        {**HEADERS, "mcp-method": "Tools/List"},
        {**HEADERS, "mcp-protocol-version": "2025-11-25"},
    ],
)
def test_headers_that_disagree_with_the_body_are_a_mismatch(headers: dict[str, str]) -> None:
    assert code_of(read(message(_meta=META), None, headers)) == -32020


def test_headers_that_agree_pass() -> None:
    assert isinstance(read(message(_meta=META), None, HEADERS), Request)


@pytest.mark.parametrize(
    ("name", "header", "passes"),
    [
        ("add", "add", True),
        ("add", "Add", False),
        ("add", None, False),
        ("wetter für", "=?base64?d2V0dGVyIGbDvHI=?=", True),
        ("wetter für", "=?base64?d2V0dGVyIGbDvHI?=", False),
        ("=?base64?x?=", "=?base64?x?=", False),
    ],
)
def test_the_name_header_is_decoded_before_it_is_compared(
    name: str, header: str | None, passes: bool
) -> None:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
    if header is not None:
        headers["mcp-name"] = header
    inbound = read(message("tools/call", name=name, _meta=META), None, headers)
    assert isinstance(inbound, Request) is passes


def test_a_bad_legacy_version_header_is_a_bare_refusal() -> None:
    refused = read(message(), Version.V2025_11_25, {"mcp-protocol-version": "bogus"})
    assert isinstance(refused, RefusedMessage)
    assert refused.bare


@given(st.text())
def test_any_text_survives_the_way_through_a_header(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    header = encode_header(value)
    assert header.isascii()
    assert header.isprintable()
    assert decode_header(header) == value


@pytest.mark.parametrize(
    ("value", "header", "agrees"),
    [
        ("eu", "eu", True),
        ("eu", "us", False),
        ("eu", None, False),
        (None, None, True),
        (None, "eu", False),
        (42, "42", True),
        (42, "42.0", True),
        (42, "x", False),
        (42, "nan", False),
        (42, "sNaN", False),
        (2**53 + 1, "9007199254740993", True),
        (2**53, "9007199254740993", False),
        (True, "true", True),
        (True, "True", False),
        (True, "1", False),
    ],
)
def test_parameter_headers_are_held_against_the_arguments(
    value: object, header: str | None, agrees: bool
) -> None:
    params = (HeaderParam("mcp-param-region", ("where", "region"), "string"),)
    arguments = {} if value is None else {"where": {"region": value}}
    headers = {} if header is None else {"mcp-param-region": header}
    assert (check_header_params(params, arguments, headers) is None) is agrees


@given(st.sampled_from([version.text for version in LEGACY]) | st.text())
def test_initialize_is_answered_with_what_was_asked_if_we_speak_it_else_with_ours(
    asked: str,
) -> None:
    known = {version.text: version for version in LEGACY}
    assert negotiate(asked) is known.get(asked, LATEST_LEGACY)


def test_the_handshake_never_agrees_on_a_modern_version() -> None:
    assert negotiate("2026-07-28") is LATEST_LEGACY


def test_versions_are_ordered_by_time() -> None:
    texts = [version.text for version in Version]
    assert texts == sorted(texts)
    assert [version.modern for version in Version] == [False] * 4 + [True]


@pytest.mark.parametrize("more", [{}, META])
@pytest.mark.parametrize(
    ("token", "kept"), [("t", b'"t"'), (7, b"7"), (-1.5, b"-1.5"), ("", b'""'), (None, b"")]
)
def test_progress_is_named_by_a_string_or_a_number_and_by_null_not_at_all(
    token: Any, kept: bytes, more: dict[str, Any]
) -> None:
    request = read(message(_meta={**more, "progressToken": token}), LATEST_LEGACY)
    assert isinstance(request, Request)
    assert request.meta.progress_token == kept


@pytest.mark.parametrize("more", [{}, META])
@pytest.mark.parametrize("token", [{}, [], True, {"a": 1}])
def test_progress_that_is_named_by_anything_else_is_invalid(
    token: Any, more: dict[str, Any]
) -> None:
    assert code_of(read(message(_meta={**more, "progressToken": token}), LATEST_LEGACY)) == -32602
