"""The grammar of grants: read, refused with a remedy, and printed back."""

from pathlib import Path

import pytest

from portico.core.config.component_grants import (
    ComponentGrants,
    GrantedFolder,
    InvalidGrant,
    MissingFolder,
    add_grants,
)
from portico.core.config.expand import Sources, Unresolved
from portico.core.config.read import read
from portico.core.documents.problems import ConfigError
from portico.library.components.own_process import as_server, checked
from portico.library.components.wasm_process import settings_of
from tests.library.wasm.building import wat


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GREETING", "hello")


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    (tmp_path / "data").mkdir()
    return Sources({"GREETING": "hello"}, str(tmp_path))


def test_every_grant_is_read_and_printed_back(tmp_path: Path, sources: Sources) -> None:
    lines = [
        *("files=data", "files=data:rw", "files=data:/in:ro", "env=GREETING", "env=MODE=fast"),
        *("http=api.example.com", "http=*.example.org:8443", "http=[::1]:80", "config=unit=km"),
        *("secrets=key=${GREETING}", "tools=get_*", "memory=1GB", "time=500ms", "output=512KB"),
        "concurrency=2",
        "questions=sample",
    ]
    granted = add_grants(lines, sources)
    data = str(tmp_path / "data")
    assert granted.files == (
        GrantedFolder(data, data),
        GrantedFolder(data, data, is_writable=True),
        GrantedFolder(data, "/in"),
    )
    assert granted.env == {"GREETING": "hello", "MODE": "fast"}
    assert granted.secrets == {"key": "hello"}
    limits = granted.limits
    assert (limits.memory_mb, limits.time_s, limits.output_mb) == (1024, 0.5, 0.5)
    assert granted.lines() == (
        *(f"files={data}:ro", f"files={data}:rw", f"files={data}:/in:ro"),
        *("env=GREETING", "env=MODE", "http=api.example.com", "http=*.example.org:8443"),
        *("http=[::1]:80", "config=unit", "secrets=key", "tools=get_*", "questions=sample"),
        *("memory=1024MB", "time=0.5s", "output=0.5MB", "concurrency=2"),
    )
    assert "hello" not in " ".join(granted.lines())


def test_grants_without_secrets_are_read_again_as_they_are_printed(sources: Sources) -> None:
    lines = ["files=data:rw", "http=any", "tools=a", "memory=64MB", "time=5s"]
    granted = add_grants(lines, sources)
    assert add_grants(granted.lines(), sources) == granted
    assert ComponentGrants().lines() == ()


WRONG = {
    "files=gone": (MissingFolder, "there is no such folder; create it"),
    "fils=data": (InvalidGrant, "fils: not a grant; did you mean files"),
    "files": (InvalidGrant, "files: not a grant; write KEY=VALUE"),
    "http=https://api.example.com": (InvalidGrant, "not a host; write a host"),
    "http=": (InvalidGrant, "not a host"),
    "env=1A": (InvalidGrant, "not a valid name"),
    "env=": (InvalidGrant, "not a valid name"),
    "config=unit": (InvalidGrant, "has no value; write config=unit=VALUE"),
    "memory=0": (InvalidGrant, "write 1MB to 4096MB"),
    "memory=9GB": (InvalidGrant, "write 1MB to 4096MB"),
    "memory=lots": (InvalidGrant, "not within its limits"),
    "time=0": (InvalidGrant, "not within its limits"),
    "output=1GB": (InvalidGrant, "not within its limits"),
    "concurrency=1.5": (InvalidGrant, "not within its limits"),
    "questions=money": (InvalidGrant, "write elicit or sample"),
    "tools=": (InvalidGrant, "names no tool"),
    "files=home/state/data": (MissingFolder, "no such folder"),
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_grant_is_refused_with_a_remedy(line: str, sources: Sources) -> None:
    kind, why = WRONG[line]
    with pytest.raises(kind, match=why):
        add_grants([line], sources)


def test_a_file_is_not_a_folder(tmp_path: Path, sources: Sources) -> None:
    (tmp_path / "note.txt").write_text("")
    with pytest.raises(InvalidGrant, match="a file, not a folder"):
        add_grants(["files=note.txt"], sources)


def test_a_missing_variable_is_named(sources: Sources) -> None:
    with pytest.raises(Unresolved, match="NOBODY is not set"):
        add_grants(["env=NOBODY"], sources)


@pytest.mark.parametrize("place", ["home/state", "home/cache", "home", ".", "link", "/"])
def test_a_folder_with_porticos_own_files_is_never_granted(
    place: str, tmp_path: Path, sources: Sources
) -> None:
    for name in ("state", "cache", "config"):
        (tmp_path / "home" / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "home" / "state")
    with pytest.raises(InvalidGrant, match="holds Portico's own files"):
        add_grants([f"files={place}:rw"], sources)


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "portico.toml"
    path.write_text(text)
    (tmp_path / "calc.wasm").write_bytes(wat("(component)"))
    (tmp_path / "plain.py").write_text("from portico import Server\nserver = Server('x')\n")
    return path


GRANTED = """
[components.calc]
path = "calc.wasm"
instance = "session"
[components.calc.grants]
files = ["data:rw"]
env = { MODE = "${GREETING}" }
http = "api.example.com"
memory = 64
time = "5s"
"""


def test_the_config_grants_in_the_same_words(tmp_path: Path, sources: Sources) -> None:
    entry = checked(read(str(config(tmp_path, GRANTED))).components["calc"])
    assert not entry.problem
    server = as_server(entry)
    settings = settings_of(server)
    assert settings.granted.env == {"MODE": "hello"}
    assert settings.granted.lines() == (
        *(f"files={tmp_path / 'data'}:rw", "env=MODE", "http=api.example.com"),
        *("memory=64MB", "time=5s"),
    )
    assert (server.era, settings.instance) == ("modern", "session")


def test_a_folder_that_is_missing_stops_only_its_component(tmp_path: Path) -> None:
    text = '[components.calc]\npath = "calc.wasm"\ngrants = { files = ["gone"] }\n'
    entry = read(str(config(tmp_path, text))).components["calc"]
    assert "components.calc.grants.files" in entry.problem
    assert "there is no such folder" in entry.problem


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("{ memry = 1 }", "components.calc.grants.memry: unknown key; did you mean memory?"),
        ("{ files = 3 }", "components.calc.grants.files: must be a string or a list of strings"),
        ("{ secrets = { a = 1 } }", "components.calc.grants.secrets: must be"),
        ('{ memory = "9GB" }', "components.calc.grants.memory: memory=9GB"),
        ('"all"', "components.calc.grants: must be a table"),
    ],
)
def test_a_wrong_table_of_grants_is_an_error_of_the_config(
    tmp_path: Path, table: str, why: str
) -> None:
    path = config(tmp_path, f'[components.calc]\npath = "calc.wasm"\ngrants = {table}\n')
    with pytest.raises(ConfigError) as caught:
        read(str(path))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ('path = "plain.py"\ngrants = { memory = 64 }', "is not sandboxed"),
        ('path = "plain.py"\ninstance = "shared"', "is not sandboxed"),
        ('path = "calc.wasm"\nin_process = true', "cannot be loaded into this process"),
        ('path = "calc.wasm"\nenv = { A = "1" }', "write env in its grants"),
        ('path = "calc.wasm"\nsharing = "per-client"', 'by instance = "session"'),
    ],
)
def test_keys_that_do_not_fit_the_file_stop_its_component(
    tmp_path: Path, entry: str, why: str
) -> None:
    path = config(tmp_path, f"[components.one]\n{entry}\n")
    assert why in checked(read(str(path)).components["one"]).problem
