"""Sanitized definitions: invisible characters escaped in texts, values unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.sanitize import has_invisible
from portico.core.catalog.sanitize_offer import (
    SanitizedItem,
    sanitize_definition,
    sanitize_offer,
    sanitize_page,
)
from portico.core.model.offer import Listed, Offer
from portico.core.model.version import Version

_BAD = "a\u200b\U000e0041"
_ESCAPED = "a\\u{200b}\\u{e0041}"
_TEXT = st.text(st.sampled_from("ab\u200b\u202e\x1b\U000e0041\ue000\u2028é👩"), max_size=4)
_VALUE = st.recursive(
    _TEXT | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=5,
)
_SCHEMA = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "title": _TEXT,
            "description": _TEXT,
            "enum": st.lists(_VALUE, max_size=2),
            "const": _VALUE,
            "default": _VALUE | st.fixed_dictionaries({"description": _TEXT}),
            "pattern": _TEXT,
            "required": st.lists(_TEXT, max_size=2),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {"description": _TEXT},
        optional={
            "properties": st.dictionaries(
                _TEXT | st.sampled_from(["default", "enum", "title", "description"]),
                inner,
                max_size=3,
            ),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "$defs": st.dictionaries(_TEXT, inner, max_size=2),
        },
    ),
    max_leaves=6,
)
_TOOL = st.fixed_dictionaries(
    {"name": _TEXT, "title": _TEXT, "description": _TEXT, "inputSchema": _SCHEMA},
    optional={"outputSchema": _SCHEMA, "annotations": st.fixed_dictionaries({"title": _TEXT})},
)


def _sanitized(kind: str, definition: Any, *, ascii: bool = False) -> Any:
    raw = json.dumps(definition, ensure_ascii=ascii).encode()
    return json.loads(sanitize_definition(kind, raw)[0])


def _texts(schema: Any) -> list[str]:
    """The titles and descriptions of a schema, found in another way."""
    if not isinstance(schema, dict):
        return []
    found = [schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)]
    parts = [*schema.get("anyOf", ()), schema.get("items")]
    for key in ("properties", "$defs"):
        parts += schema.get(key, {}).values()
    return found + [text for part in parts for text in _texts(part)]


def _without_texts(schema: Any) -> Any:
    """A schema's values."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: of for key, of in schema.items() if key not in ("title", "description")}
    for key in ("properties", "$defs"):
        if key in kept:
            kept[key] = {name: _without_texts(of) for name, of in kept[key].items()}
    if "items" in kept:
        kept["items"] = _without_texts(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_without_texts(of) for of in kept["anyOf"]]
    return kept


@given(_TOOL, st.booleans())
def test_no_text_of_a_tool_hides_anything_and_no_value_changes(
    tool: dict[str, Any], ascii: bool
) -> None:
    result = _sanitized("tools", tool, ascii=ascii)
    texts = [result["title"], result["description"], result.get("annotations", {}).get("title", "")]
    for key in ("inputSchema", "outputSchema"):
        texts += _texts(result.get(key))
        assert _without_texts(result.get(key)) == _without_texts(tool.get(key))
    assert not any(map(has_invisible, texts))
    assert result["name"] == tool["name"]
    is_odd = has_invisible("".join(f" {text} " for text in _all(tool)))
    assert result.get("_meta") == ({"portico/hidden": True} if is_odd else None)


def _all(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [*value, *(text for of in value.values() for text in _all(of))]
    return [text for of in value for text in _all(of)] if isinstance(value, list) else []


def test_prompts_and_resources_have_their_own_texts() -> None:
    prompt = {
        "name": _BAD,
        "title": _BAD,
        "arguments": [{"name": _BAD, "title": _BAD, "description": _BAD}, 1],
    }
    result = _sanitized("prompts", prompt)
    assert (result["name"], result["title"]) == (_BAD, _ESCAPED)
    assert result["arguments"] == [{"name": _BAD, "title": _ESCAPED, "description": _ESCAPED}, 1]
    for kind, key in (("resources", "uri"), ("templates", "uriTemplate")):
        result = _sanitized(kind, {key: f"x:{_BAD}", "name": _BAD, "description": _BAD})
        assert (result[key], result["name"], result["description"]) == (
            f"x:{_BAD}",
            _ESCAPED,
            _ESCAPED,
        )


@pytest.mark.parametrize("number", ["1.0", "1e400", "-0.0", "1" * 40, "0.10", "1E5"])
def test_numbers_stay_as_they_are_written(number: str) -> None:
    raw = b'{"title":"\xe2\x80\x8b","inputSchema":{"const":%s}}' % number.encode()
    assert b'"const":%s}' % number.encode() in sanitize_definition("tools", raw)[0]


def test_half_a_character_does_not_keep_the_rest_hidden() -> None:
    raw = b'{"name":"x","description":"a\\u200b \\ud800","inputSchema":{"enum":["\\udfff",1.5]}}'
    result = json.loads(sanitize_definition("tools", raw)[0])
    assert result["description"] == "a\\u{200b} \\u{d800}"
    assert result["inputSchema"] == {"enum": ["\udfff", 1.5]}


def test_a_deep_schema_is_looked_at_to_its_end() -> None:
    schema: dict[str, Any] = {"description": _BAD}
    for _ in range(150):
        schema = {"items": schema}
    result = _sanitized("tools", {"name": "x", "inputSchema": schema})
    assert _texts(result["inputSchema"]) == [_ESCAPED]


def test_clean_facts_are_the_very_same_and_others_name_what_hides_something() -> None:
    clean = Offer(
        Version.V2025_11_25,
        '{"instructions":"Grüße"}'.encode(),
        {"tools": Listed((b'{"name":"a","title":"\\u00e9"}',), ("a",))},
        0.0,
    )
    assert sanitize_offer(clean) == (clean, ())
    assert sanitize_offer(clean)[0] is clean
    raw = json.dumps({"name": "b", "inputSchema": {"enum": [_BAD]}}).encode()
    said = json.dumps({"instructions": _BAD, "serverInfo": {"name": _BAD}}).encode()
    lists = {"tools": Listed((*clean.lists["tools"].items, raw), ("a", "b"))}
    result, items = sanitize_offer(Offer(Version.V2025_11_25, said, lists, 0.0))
    assert items == (SanitizedItem("tools", "b", True), SanitizedItem("instructions", "", False))
    assert json.loads(result.introduction) == {
        "instructions": _ESCAPED,
        "serverInfo": {"name": _ESCAPED},
    }
    assert result.lists["tools"].items[0] is clean.lists["tools"].items[0]


def test_a_page_that_is_passed_on_is_looked_at_too() -> None:
    page = {"tools": [{"name": "a", "title": _BAD}], "nextCursor": "x"}
    result = json.loads(sanitize_page("tools", "tools", json.dumps(page).encode()))
    assert result["tools"][0]["title"] == _ESCAPED
    assert result["nextCursor"] == "x"
