"""The tables [registries] and [trust]: read, and every mistake named with its line."""

from pathlib import Path

import pytest

from portico.core.config.read import read
from portico.core.documents.problems import ConfigError


def problems(folder: Path, text: str) -> list[str]:
    path = folder / "portico.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_registries_and_keys_are_read(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text(
        """
[registries.team]
url = "https://Registry.example:8443/team/"
default = true
[trust]
unsigned = ["other.example/x", "team"]
[trust.keys.ada]
file = "ada.pub"
signs_for = ["team", "*"]
"""
    )
    found = read(path).publishing
    assert found.default_place == "registry.example:8443/team"
    assert found.registry("registry.example:8443") is found.registries["team"]
    assert found.registry("other.example").url == "https://other.example"
    assert found.trust.unsigned == ("other.example/x", "registry.example:8443/team")
    ada = found.trust.keys["ada"]
    assert ada.file == str(tmp_path / "ada.pub")
    assert ada.signs_for == ("registry.example:8443/team", "*")


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    text = """\
[registries.a]
url = "http://registry.example"
[registries.b]
url = "http://127.0.0.1:5000"
[registries.c]
url = "http://registry.example"
insecure = true
[registries.d]
default = true
[registries.e]
url = "https://user@e.example"
default = true
[registries."no name"]
url = "ftp://x"
[trust]
unsinged = []
[trust.keys.ada]
file = 3
[trust.keys.bob]
signs_for = ["*"]
"""
    found = problems(tmp_path, text)
    for line, why in (
        (2, "registries.a.url: others could change components on their way; use https"),
        (4, "use https, or set insecure = true"),
        (7, "registries.c.insecure: is only for registries on this machine; use https"),
        (8, 'registries.d: has no url; add url = "https://HOST"'),
        (11, "registries.e.url: is not the URL of a registry; write https://HOST[/PATH]"),
        (12, "registries.e.default: d is the default already; remove one of them"),
        (13, "is not a valid registry name; write no-name"),
        (14, "is not an http:// or https:// URL"),
        (16, "trust.unsinged: unknown key; did you mean unsigned?"),
        (17, 'trust.keys.ada: may sign nothing; add signs_for = ["HOST/NAME"], or ["*"] for all'),
        (18, "trust.keys.ada.file: must be a string, not a number"),
        (19, 'trust.keys.bob: has no file; add file = "NAME.pub", its public key'),
    ):
        assert any(one.startswith(f"portico.toml:{line}: ") and why in one for one in found), why


@pytest.mark.parametrize("text", ["registries = 1", "trust = 1", "[trust]\nkeys = 1"])
def test_a_value_in_place_of_a_table_is_reported(tmp_path: Path, text: str) -> None:
    assert "must be a table" in problems(tmp_path, text)[0]


def test_a_component_has_one_of_path_reference_and_command(tmp_path: Path) -> None:
    text = """\
[components.a]
oci = "oci://registry.example/a:1"
command = "a"
[components.b]
oci = "ns:b"
in_process = true
[components.c]
oci = "ns:c"
args = ["x"]
"""
    assert problems(tmp_path, text) == [
        "portico.toml:1: components.a: has both oci and command; remove one of them",
        "portico.toml:6: components.b.in_process: is for a path, not a reference; remove it",
        "portico.toml:9: components.c.args: is for a command, not a reference; remove it",
    ]
