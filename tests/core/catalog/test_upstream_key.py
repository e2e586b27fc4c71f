"""The key of an upstream, which is the same only for the same account."""

import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.upstream_key import upstream_key
from portico.core.state.user_secret import FILE_NAME, user_secret

SECRET = b"s" * 32


def key(**of: Any) -> str:
    return upstream_key(SECRET, **{"argv": ("server", "--stdio"), "cwd": "/work"} | of)


def test_a_key_is_a_file_name_and_stays_the_same() -> None:
    assert key(env={"A": "1"}) == key(env={"A": "1"})
    assert key().isalnum()
    assert len(key()) == 40


def test_the_order_of_the_environment_and_of_headers_does_not_matter() -> None:
    assert key(env={"A": "1", "B": "2"}) == key(env={"B": "2", "A": "1"})
    assert key(headers={"X-A": "1", "x-b": "2"}) == key(headers={"X-B": "2", "x-a": "1"})


def test_whatever_tells_accounts_apart_tells_keys_apart() -> None:
    keys = [
        key(),
        key(argv=("server", "--stdio", "")),
        key(argv=("server--stdio",)),
        key(argv=("server-", "-stdio")),
        key(argv=(), url="https://example.com/mcp"),
        key(argv=("https://example.com/mcp",)),
        key(cwd="/elsewhere"),
        key(cwd=""),
        key(env={"TOKEN": "one"}),
        key(env={"TOKEN": "two"}),
        key(env={"TOKENo": "ne"}),
        key(env={"TOKEN": "one", "": ""}),
        key(env={"TOKEN": "\udcff"}),
        key(headers={"TOKEN": "one"}),
        key(account="somebody"),
        upstream_key(b"t" * 32, argv=("server", "--stdio"), cwd="/work"),
    ]

    assert len(set(keys)) == len(keys)


_texts = st.text(st.sampled_from("ab\0=\ud800"), max_size=3)
_inputs = st.fixed_dictionaries(
    {
        "argv": st.lists(_texts, max_size=3).map(tuple),
        "url": _texts,
        "cwd": _texts,
        "env": st.dictionaries(_texts, _texts, max_size=2),
        "headers": st.dictionaries(_texts, _texts, max_size=2),
        "account": _texts,
    }
)


@given(_inputs, _inputs)
def test_two_keys_are_equal_only_if_all_is_equal(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert (key(**one) == key(**two)) == (one == two)


def test_the_secret_is_made_once_for_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "portico"
    old = os.umask(0)
    try:
        first = user_secret(folder)
    finally:
        os.umask(old)

    assert len(first) == 32
    assert user_secret(folder) == first
    assert os.listdir(folder) == [FILE_NAME]
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def _racing(folder: str) -> bytes:
    return user_secret(folder)


def test_many_processes_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    folder = str(tmp_path / "state")
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        secrets = pool.map(_racing, [folder] * 16, chunksize=1)

    assert len(set(secrets)) == 1
    assert os.listdir(folder) == [FILE_NAME]


@pytest.mark.parametrize(
    ("content", "mode"), [(b"", 0o600), (b"short", 0o600), (b"l" * 33, 0o600), (SECRET, 0o640)]
)
def test_a_secret_that_cannot_be_trusted_is_made_anew(
    tmp_path: Path, content: bytes, mode: int
) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(content)
    file.chmod(mode)

    secret = user_secret(tmp_path)

    assert secret != content
    assert user_secret(tmp_path) == secret == file.read_bytes()
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_a_link_or_a_pipe_is_replaced(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    planted = user_secret(elsewhere)
    file = tmp_path / FILE_NAME
    file.symlink_to(elsewhere / FILE_NAME)
    assert user_secret(tmp_path) != planted

    file.unlink()
    os.mkfifo(file)
    assert user_secret(tmp_path) == file.read_bytes()


_FULL = """
import resource, sys
from portico.core.state.user_secret import user_secret

resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
first = user_secret(sys.argv[1])
assert user_secret(sys.argv[1]) == first
print(first.hex())
"""


def test_where_none_can_be_kept_each_process_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    full = tmp_path / "full"
    found = set()
    for folder in (full, full, tmp_path / "file", tmp_path / "file" / "state"):
        command = [sys.executable, "-c", _FULL, str(folder)]
        found.add(subprocess.run(command, capture_output=True, check=True).stdout)

    assert len(found) == 4
    assert os.listdir(full) == []
