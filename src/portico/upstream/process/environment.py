"""Environment variables: which ones a child gets, identify an account or are secret."""

import re
from collections.abc import Mapping
from functools import cache

_CLEAN = """
    HOME LOGNAME PATH SHELL TERM TMPDIR TZ USER
    LANG LANGUAGE LC_*
    SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR XDG_STATE_HOME
"""
"""Variables every child needs: user, language, folders and trusted certificates."""

_EVERYWHERE = """
    HOME LOGNAME USER USERNAME SHELL PATH MANPATH INFOPATH MAIL HOSTNAME HOSTTYPE MACHTYPE OSTYPE
    PWD OLDPWD SHLVL _ IFS PS1 PS2 PS4 PROMPT PROMPT_COMMAND HIST* LINES COLUMNS
    EUID UID GID GROUPS PPID RANDOM SECONDS BASHOPTS SHELLOPTS BASH BASH_VERSION ZDOTDIR ZSH
    LANG LANGUAGE LC_* TZ TMPDIR TMP TEMP
    EDITOR VISUAL PAGER MANPAGER BROWSER LESS LESSOPEN LESSCLOSE LESS_TERMCAP_*
    TERM TERMCAP TERMINFO TERMINFO_DIRS TERM_PROGRAM TERM_PROGRAM_VERSION TERM_SESSION_ID
    TERM_FEATURES TERMINAL_EMULATOR COLORTERM COLORFGBG CLICOLOR CLICOLOR_FORCE NO_COLOR
    FORCE_COLOR LS_COLORS LSCOLORS GREP_COLOR GREP_COLORS
    WINDOWID VTE_VERSION ITERM_PROFILE ITERM_SESSION_ID LC_TERMINAL LC_TERMINAL_VERSION
    KITTY_PID KITTY_WINDOW_ID KITTY_INSTALLATION_DIR KITTY_PUBLIC_KEY KITTY_LISTEN_ON
    WEZTERM_* ALACRITTY_* GHOSTTY_* KONSOLE_* GNOME_TERMINAL_* TILIX_ID WT_SESSION WT_PROFILE_ID
    TMUX TMUX_PANE TMUX_TMPDIR STY WINDOW ZELLIJ ZELLIJ_* BYOBU_*
    DISPLAY WAYLAND_DISPLAY XAUTHORITY ICEAUTHORITY SESSION_MANAGER DESKTOP_SESSION
    DESKTOP_STARTUP_ID DESKTOP_AUTOSTART_ID GDMSESSION GNOME_DESKTOP_SESSION_ID
    GNOME_SETUP_DISPLAY GNOME_SHELL_SESSION_MODE GIO_LAUNCHED_DESKTOP_FILE
    GIO_LAUNCHED_DESKTOP_FILE_PID GTK_* QT_* KDE_* XCURSOR_* XMODIFIERS IM_CONFIG_PHASE SWAYSOCK
    I3SOCK HYPRLAND_* XDG_*
    DBUS_SESSION_BUS_ADDRESS DBUS_SESSION_BUS_PID DBUS_SESSION_BUS_WINDOWID DBUS_STARTER_ADDRESS
    DBUS_STARTER_BUS_TYPE SSH_AGENT_LAUNCHER SSH_AGENT_PID SSH_AUTH_SOCK SSH_CLIENT SSH_CONNECTION
    SSH_TTY SSH_ASKPASS GPG_TTY GPG_AGENT_INFO
    INVOCATION_ID JOURNAL_STREAM SYSTEMD_EXEC_PID MANAGERPID MEMORY_PRESSURE_WATCH
    MEMORY_PRESSURE_WRITE NOTIFY_SOCKET WATCHDOG_PID WATCHDOG_USEC LISTEN_FDS LISTEN_PID
    SUDO_COMMAND SUDO_GID SUDO_UID SUDO_USER
    Apple_PubSub_Socket_Render COMMAND_MODE LaunchInstanceID SECURITYSESSIONID XPC_FLAGS
    XPC_SERVICE_NAME __CFBundleIdentifier __CF_USER_TEXT_ENCODING
    WSL_DISTRO_NAME WSL_INTEROP WSLENV NAME
    VSCODE_* CURSOR_TRACE_ID
    VIRTUAL_ENV_PROMPT CONDA_PROMPT_MODIFIER CONDA_SHLVL STARSHIP_SESSION_KEY STARSHIP_SHELL
    PORTICO_CHILD PORTICO_COMPOSITIONS PORTICO_DEBUGGABLE PORTICO_TOKEN P9K_*
    NVM_BIN NVM_CD_FLAGS NVM_DIR NVM_INC FNM_MULTISHELL_PATH
"""
"""Variables of a shell, terminal or desktop: they differ by window and do not affect the account.

A star follows only a prefix that no account variable has.
"""

COMPOSITIONS = "PORTICO_COMPOSITIONS"
"""The digests of the compositions around a process, which none of them may start again."""
ENDPOINT_TOKEN = "PORTICO_TOKEN"  # noqa: S105  (its name, not its value)
"""The token of our own endpoint, which no server behind it needs."""

_SECRET = re.compile(
    r"(?<!MAX_)TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|BEARER|API_?KEY|(ACCESS|PRIVATE)_?KEY"
    r"|(^|_)(KEY|PASS|PAT)$|_PWD$"
)


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables that every child needs."""
    needed = _names(_CLEAN)
    return {name: value for name, value in environ.items() if needed.fullmatch(name)}


def meaningful(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may change a server's responses."""
    known = _names(_EVERYWHERE)
    return {name: value for name, value in environ.items() if not known.fullmatch(name)}


def secrets(environ: Mapping[str, str]) -> list[str]:
    """Return the values of the variables that look secret."""
    known = meaningful(environ).items()
    return [value for name, value in known if looks_secret(name)]


def looks_secret(name: str) -> bool:
    """True if the name of a variable suggests a secret value."""
    return _SECRET.search(name.upper()) is not None


@cache  # not at import: it takes milliseconds
def _names(table: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in table.split()))
