"""Values from elsewhere: variables, files and the keyring."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.config.expand import Sources, Unresolved

ENVIRON = {"A": "alpha", "EMPTY": "", "TRICKY": "${A} file:/etc/passwd"}
SOURCES = Sources(ENVIRON, "/nowhere")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("${A}", "alpha"),
        ("${env:A}", "alpha"),
        ("x${A}y${A}z", "xalphayalphaz"),
        ("${B:-b}", "b"),
        ("${env:B:-b:-c}", "b:-c"),
        ("${A:-b}", "alpha"),
        ("${EMPTY}", ""),
        ("${EMPTY:-b}", "b"),
        ("${B:-}", ""),
        ("${TRICKY}", "${A} file:/etc/passwd"),
        ("$A $ {A} }{ $$", "$A $ {A} }{ $$"),
        ("file:///etc/hosts", "file:///etc/hosts"),
        ("${B:-file:x}", "file:x"),
    ],
)
def test_references_are_replaced_once(raw: str, value: str) -> None:
    assert SOURCES.resolve(raw) == value


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ("${B}", "B is not set"),
        ("${a}", "a is not set"),
        ("${", "${ has no closing }"),
        ("${A", "${ has no closing }"),
        ("${}", "does not name a variable"),
        ("${A B}", "does not name a variable"),
        ("${B:-${A}}", "does not name a variable"),
        ("${A-b}", "does not name a variable"),
        ("${input:x}", "cannot be prompted for here"),
        ("${workspaceFolder}/x", "only available in an editor"),
        ("file:none", "/nowhere/none cannot be read: No such file"),
        ("${file:none}", "cannot be read"),
    ],
)
def test_what_cannot_be_had_says_so(raw: str, what: str) -> None:
    with pytest.raises(Unresolved) as caught:
        SOURCES.resolve(raw)
    assert what in caught.value.what
    assert caught.value.remedy


def test_a_file_holds_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(" s3cret \r\n\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    sources = Sources({"NAME": "token"}, str(tmp_path))
    for raw in ("file:token", "file:${NAME}", "file:~/token", f"file:{tmp_path}/token"):
        assert sources.resolve(raw) == " s3cret "
    assert sources.resolve("Bearer ${file:token}") == "Bearer  s3cret "


def test_a_file_that_holds_no_value_is_refused_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"s3cret" * 20_000)
    (tmp_path / "bytes").write_bytes(b"s3cret\xff")
    os.mkfifo(tmp_path / "pipe")
    for name in ("huge", "bytes", "pipe", ".", "a\0b"):
        with pytest.raises(Unresolved) as caught:
            Sources({}, str(tmp_path)).resolve(f"file:{name}")
        assert "s3cret" not in caught.value.what + caught.value.remedy


def test_what_a_variable_holds_is_not_shown_as_a_path_either(tmp_path: Path) -> None:
    sources = Sources({"V": "s3cret"}, str(tmp_path))
    for raw in ("file:${V}", "file:x/${V}", "keyring:${V}"):
        with pytest.raises(Unresolved) as caught:
            sources.resolve(raw)
        assert "s3cret" not in caught.value.what + caught.value.remedy
        assert "${V}" in caught.value.what


def test_the_keyring_is_asked_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(Unresolved) as caught:
        SOURCES.resolve("keyring:github")
    assert "pip install keyring" in caught.value.remedy

    class Locked(Exception):
        pass

    def get_password(service: str, name: str) -> str | None:
        if name == "locked":
            raise Locked("s3cret")
        return {("portico", "github"): "s3cret"}.get((service, name))

    keyring = ModuleType("keyring")
    vars(keyring).update(get_password=get_password, errors=SimpleNamespace(KeyringError=Locked))
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    assert SOURCES.resolve("keyring:github") == "s3cret"
    for name, why in (("other", "has no other"), ("locked", "did not return locked: Locked")):
        with pytest.raises(Unresolved, match=why) as caught:
            SOURCES.resolve(f"keyring:{name}")
        assert "s3cret" not in caught.value.what


_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
_plain = st.text(st.characters(codec="utf-8", exclude_characters="$"), max_size=8)


@given(st.dictionaries(_names, st.text(max_size=8)), st.data())
def test_a_value_is_its_parts_in_order(environ: dict[str, str], data: st.DataObject) -> None:
    raw = value = ""
    for _ in range(data.draw(st.integers(0, 4))):
        plain = data.draw(_plain)
        raw, value = raw + plain, value + plain
        name = data.draw(_names | st.sampled_from(sorted(environ)) if environ else _names)
        default = data.draw(st.text("ab:-/é", max_size=4))
        raw += f"${{{data.draw(st.sampled_from(['', 'env:']))}{name}:-{default}}}"
        value += environ.get(name) or default
    assert Sources(environ, "/").expand(raw) == value


@given(st.text("${}:-AaB_env file", max_size=30))
def test_any_text_gives_a_value_or_a_reason(raw: str) -> None:
    with suppress(Unresolved):
        assert isinstance(SOURCES.resolve(raw), str)
