"""The variables that a child gets, and those that distinguish accounts."""

import pytest

from portico.upstream.process.environment import clean, looks_secret, meaningful, secrets
from portico.upstream.process.stderr_tail import StderrTail

WINDOW = """
    PWD OLDPWD SHLVL _ TERM TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID COLORTERM LS_COLORS
    DISPLAY WAYLAND_DISPLAY SSH_AUTH_SOCK SSH_AGENT_PID SSH_CLIENT SSH_CONNECTION SSH_TTY
    DBUS_SESSION_BUS_ADDRESS XDG_SESSION_ID XDG_RUNTIME_DIR XDG_CURRENT_DESKTOP WINDOWID VTE_VERSION
    ITERM_PROFILE ITERM_SESSION_ID TMUX TMUX_PANE STY HOME USER LOGNAME SHELL PATH LANG LC_ALL
    LC_CTYPE EDITOR PAGER HISTSIZE HISTFILE HISTCONTROL INVOCATION_ID JOURNAL_STREAM MAIL HOSTNAME
    KITTY_WINDOW_ID VSCODE_IPC_HOOK_CLI COLUMNS LINES
"""

ACCOUNT = """
    GITHUB_TOKEN OPENAI_API_KEY AWS_PROFILE AWS_SECRET_ACCESS_KEY DATABASE_URL API_KEY TOKEN PGHOST
    KUBECONFIG HTTPS_PROXY NODE_ENV PATH_TO_DATA HOME_ASSISTANT_TOKEN USER_TOKEN SHELL_TOKEN
    TERMINUS_TOKEN SSH_PASSWORD SSH_HOST SSH_KEY DBUS_TOKEN MAILGUN_API_KEY LANGSMITH_API_KEY
    HOSTNAME_OVERRIDE EDITOR_TOKEN NAMESPACE virtual_env VIRTUAL_ENV SUDO_PASSWORD
"""


@pytest.mark.parametrize("name", WINDOW.split())
def test_what_differs_by_window_tells_no_account_from_another(name: str) -> None:
    assert meaningful({name: "1"}) == {}


@pytest.mark.parametrize("name", ACCOUNT.split())
def test_what_may_name_an_account_is_kept(name: str) -> None:
    assert meaningful({name: "1"}) == {name: "1"}
    assert clean({name: "1"}) == {}


def test_a_clean_environment_has_what_a_command_needs_to_start() -> None:
    ours = {"PATH": "/bin", "HOME": "/h", "LC_TIME": "C", "TZ": "UTC", "TOKEN": "t", "PWD": "/p"}
    assert list(clean(ours)) == ["PATH", "HOME", "LC_TIME", "TZ"]


def test_secrets_are_known_by_their_names() -> None:
    ours = {"GITHUB_TOKEN": "a", "DB_PASSWORD": "b", "ACME_KEY": "c", "HOME": "/h", "MODE": "d"}
    assert secrets(ours) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "name", ["KEY", "apiKey", "DB_PASS", "GITHUB_PAT", "SA_PWD", "A_PASSPHRASE", "BEARER"]
)
def test_a_name_that_looks_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "PATH", "KEYBOARD", "PASSIVE"]
)
def test_a_name_that_does_not_look_secret(name: str) -> None:
    assert not looks_secret(name)


def test_a_secret_cut_in_half_by_the_bound_is_hidden_too() -> None:
    ring = StderrTail(limit=40, secrets=["SECRET-VALUE", "SECRET-VALUE-2"])
    ring.add(b"the token is SECRET-VALUE and that is bad, so say all of us")
    assert ring.tail() == "t is bad, so say all of us"
    ring.add(b"\nSECRET-VALUE-2 too")
    assert ring.tail().endswith("*** too")
