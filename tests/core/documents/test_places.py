"""Where things stand in a file: every key is found, whatever is written around it."""

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from portico.core.documents import edit_toml
from portico.core.documents.json_places import json_places
from portico.core.documents.places import LineIndex, places

TOML = '''\
# [not.a.table]
top = """
[nor.this]
x = 1 \\""" """""
[a."b.c".'d']  # a comment = 1
key = [ # one
  "x]", { y = 1, "z" = { w = [2] } },
]
q.r . "s" = '#'
[[list]]
n = 1979-05-27 07:32:00
[[list]]
[list.sub]
n = 2
'''


def test_tables_keys_and_elements_of_toml_have_their_lines() -> None:
    tomllib.loads(TOML)
    lines = LineIndex(TOML, "toml")
    for path, line in (
        (("top",), 2),
        (("a", "b.c", "d"), 5),
        (("a", "b.c", "d", "key", 0), 7),
        (("a", "b.c", "d", "key", 1, "z", "w", 0), 7),
        (("a", "b.c", "d", "q", "r", "s"), 9),
        (("list", 0, "n"), 11),
        (("list", 1), 12),
        (("list", 1, "sub", "n"), 14),
        (("a", "b.c", "nowhere", "at", "all"), 5),
        (("nowhere",), 1),
    ):
        assert lines.line(path) == line, path
    assert [TOML[p.value : p.end] for p in places(TOML, "toml") if p.path[-1:] == ("n",)] == [
        "1979-05-27 07:32:00",
        "2",
    ]


def test_a_text_that_is_neither_has_one_line() -> None:
    assert LineIndex("{[[", "toml").line(("a",)) == 1
    assert LineIndex('{"a" "b"', "json").line(("a",)) == 1


_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def _walked(value: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    found = {path: value}
    steps = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else steps:
        found |= _walked(one, (*path, key))
    return found


@given(_json, st.sampled_from([None, 2]), st.booleans())
def test_every_value_of_any_json_is_found(value: Any, indent: int | None, plain: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    found = {place.path: text[place.value : place.end] for place in places(text, "json")}
    wanted = _walked(value)
    assert list(found) == list(wanted)
    assert {path: repr(json.loads(part)) for path, part in found.items()} == {
        path: repr(part) for path, part in wanted.items()
    }


_toml = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), _toml, max_size=4))
def test_every_value_of_any_toml_is_found(entry: dict[str, Any]) -> None:
    text = edit_toml.added("", ("servers",), "x", entry)
    assert tomllib.loads(text)["servers"]["x"] == entry
    found = {place.path[2:]: place for place in places(text, "toml") if not place.header}
    wanted = _walked(entry)
    assert set(found) == set(wanted) - {()}
    for path, place in found.items():
        assert tomllib.loads(f"v = {text[place.value : place.end]}")["v"] == wanted[path]


_SCALARS = st.none() | st.text() | st.integers()
_JSON = st.recursive(
    _SCALARS, lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=20
)


@given(_JSON, st.data())
def test_places_along_a_path_are_those_of_the_whole_text(data: Any, draw: st.DataObject) -> None:
    text = json.dumps({"": data, "a": {"b": [data]}}, indent=1)
    whole = json_places(text)
    outer = draw.draw(st.sampled_from([place.path for place in whole]))
    found = json_places(text, along=outer)
    assert [one for one in found if one.path[:-1] == outer and one.path] == [
        one for one in whole if one.path[:-1] == outer and one.path
    ]
    assert set(found) <= set(whole)
