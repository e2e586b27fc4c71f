"""The door token: made once, private, the same ever after."""

import errno
import multiprocessing
import os
import secrets
import stat
from pathlib import Path

import pytest

from portico.core.config.paths import cache_folder, config_file, state_dir
from portico.upstream.auth.token import (
    FILE_NAME,
    VARIABLE,
    TokenError,
    given_token,
    read_token,
    required_token,
    saved_token,
)


def test_a_token_is_made_once_and_stays_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "portico"

    first = saved_token(folder)

    assert len(first) >= 43
    assert saved_token(folder) == first
    assert read_token(folder) == first


def test_only_its_owner_can_read_the_token(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    old = os.umask(0)
    try:
        saved_token(folder)
    finally:
        os.umask(old)

    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]


def test_a_folder_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    folder.chmod(0o775)

    saved_token(folder)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_looking_for_a_token_makes_none(tmp_path: Path) -> None:
    assert read_token(tmp_path / "state") is None
    assert not (tmp_path / "state").exists()


def _racing(folder: str) -> str:
    return saved_token(Path(folder))


def test_many_processes_at_once_agree_on_one_token(tmp_path: Path) -> None:
    folder = str(tmp_path / "state")
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        tokens = pool.map(_racing, [folder] * 16, chunksize=1)

    assert len(set(tokens)) == 1
    assert os.listdir(folder) == [FILE_NAME]


@pytest.mark.parametrize("content", ["", "\n", "short\n", "two words of a token\n", "\x00" * 43])
def test_a_file_without_a_token_is_an_error_that_says_what_to_do(
    tmp_path: Path, content: str
) -> None:
    saved_token(tmp_path)
    (tmp_path / FILE_NAME).write_text(content)

    with pytest.raises(TokenError, match="delete it"):
        saved_token(tmp_path)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    saved_token(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o644)

    with pytest.raises(TokenError, match=r"mode 0644.*chmod 600"):
        saved_token(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    saved_token(elsewhere)
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / FILE_NAME).symlink_to(elsewhere / FILE_NAME)

    with pytest.raises(TokenError, match="cannot be read"):
        saved_token(folder)


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()

    with pytest.raises(TokenError, match=r"token cannot be read \(Is a directory\); delete it"):
        saved_token(tmp_path)


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)

    with pytest.raises(TokenError, match="is not a file"):
        saved_token(tmp_path)


def test_a_disk_that_takes_nothing_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # A read-only disk says so before it says that there is no such file.
    monkeypatch.setattr(secrets, "token_urlsafe", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)

    with pytest.raises(TokenError, match=r"Read-only file system.*PORTICO_HOME"):
        saved_token(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(TokenError, match="PORTICO_HOME"):
        saved_token(tmp_path / "file" / "state")


def test_folders_follow_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PORTICO_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert config_file() == str(tmp_path / ".config/portico/portico.toml")
    assert state_dir() == tmp_path / ".local/state/portico"
    assert cache_folder() == str(tmp_path / ".cache/portico")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")

    assert state_dir() == tmp_path / "s/portico"
    assert cache_folder() == str(tmp_path / ".cache/portico")


def test_portico_home_moves_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")

    assert (config_file(), state_dir(), cache_folder()) == (
        str(tmp_path / "config/portico.toml"),
        tmp_path / "state",
        str(tmp_path / "cache"),
    )


GIVEN = "correct-horse-battery"


def named(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    """A file that a user made for a token."""
    path = tmp_path / "mine"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_given_token_is_taken_instead_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{GIVEN}-of-the-variable")
    of_variable = required_token(tmp_path / "state", None)
    of_file = required_token(tmp_path / "state", named(tmp_path, f"{GIVEN}\n"))
    monkeypatch.delenv(VARIABLE)

    assert of_variable.token == f"{GIVEN}-of-the-variable"
    assert of_file.token == GIVEN  # the file was named, the variable may be set for something else
    assert not (tmp_path / "state").exists()
    assert required_token(tmp_path / "state", None).token == saved_token(tmp_path / "state")
    assert GIVEN not in repr(of_file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("two words", "must be one word"),
        ("first\nsecond", "must be one word"),
        ("t\u00f6ken", "must be one word"),
        ("x" * 513, "must be one word"),
        ("a\x07b", "must be one word"),
    ],
)
def test_what_is_no_token_is_told_by_its_place(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = named(tmp_path, text)
    with pytest.raises(TokenError, match=says) as of_file:
        given_token(file)
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(TokenError, match=says) as of_variable:
        given_token(None)

    assert str(of_file.value).startswith(file)
    assert str(of_variable.value).startswith(VARIABLE)


def test_a_token_that_can_be_guessed_opens_no_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "hunter2")

    with pytest.raises(TokenError, match="has 7 characters") as caught:
        required_token(tmp_path, None)

    assert "hunter2" not in str(caught.value)
    given = given_token(None)  # a door elsewhere may have a short one
    assert given is not None
    assert given.token == "hunter2"


@pytest.mark.parametrize(
    ("mode", "fine"),
    [(0o600, True), (0o400, True), (0o640, True), (0o644, False), (0o604, False), (0o620, False)],
)
def test_a_token_file_that_others_can_read_or_write_is_refused(
    mode: int, fine: bool, tmp_path: Path
) -> None:
    file = named(tmp_path, GIVEN, mode)
    if fine:
        found = given_token(file)
        assert found is not None
        assert found.token == GIVEN
        return
    with pytest.raises(TokenError, match=f"mode {mode:04o}.*chmod 600"):
        given_token(file)


def test_a_token_file_may_be_a_link_but_nothing_else(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(named(tmp_path, GIVEN))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    found = given_token(str(link))
    assert found is not None
    assert found.token == GIVEN
    for wrong, says in ((pipe, "is not a file"), (tmp_path, "Is a directory"), ("/no", "No such")):
        with pytest.raises(TokenError, match=says):
            given_token(str(wrong))
