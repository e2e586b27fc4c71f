"""`portico completion`: scripts that complete `portico` command lines in a shell.

The scripts contain no commands or options. They pass the words typed so far to `portico completion
suggest` and show its output, so they stay correct when commands change.
"""

import argparse
import sys

from portico.commands.console.parser import Parser

SUGGEST = "suggest"
"""The argument with which a script requests suggestions; the words typed so far follow."""

_BASH = r"""
_portico_add() {
    local line
    while IFS= read -r line; do COMPREPLY+=("$line"); done
}

_portico() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[0]/#\~/$HOME} line
    COMPREPLY=()
    [[ $word == = ]] && word=
    while IFS= read -r line; do
        case $line in
            :files) compopt -o filenames 2>/dev/null; _portico_add < <(compgen -f -- "$word") ;;
            :folders) compopt -o filenames 2>/dev/null; _portico_add < <(compgen -d -- "$word") ;;
            :commands) _portico_add < <(compgen -c -- "$word") ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("$command" completion suggest "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}

complete -F _portico portico
"""

_ZSH = r"""#compdef portico
_portico() {
    local -a lines found
    local line name portico=${words[1]/#\~/$HOME} code=1
    lines=("${(@f)$("$portico" completion suggest "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $lines; do
        case $line in
            :files) _files && code=0 ;;
            :folders) _files -/ && code=0 ;;
            :commands) _command_names -e && code=0 ;;
            *) name=${line%%$'\t'*}
               found+=("${name//:/\\:}${${line#$name}/$'\t'/:}") ;;
        esac
    done
    (( $#found )) && _describe portico found && code=0
    return code
}

if [[ ${funcstack[1]} == _portico ]]; then
    _portico "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _portico portico
fi
"""

_FISH = r"""
function __portico_suggest
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l portico (string replace -r '^~' $HOME -- $words[1])
    for line in ($portico completion suggest $words[2..-1] "$token" 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path "$token"
            case ':folders'
                __fish_complete_directories "$token"
            case ':commands'
                __fish_complete_command
            case '*'
                printf '%s\n' $line
        end
    end
end

complete -c portico -f -a '(__portico_suggest)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def main(argv: list[str]) -> int:
    """Print a shell's script, or the suggestions that a script requests."""
    if argv[:1] == [SUGGEST]:
        from portico.commands.cli.suggest import suggestions

        for line in suggestions(argv[1:]):
            print(line)
        return 0
    sys.stdout.write(_SCRIPTS[_parser().parse_args(argv).shell].removeprefix("\n"))
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="portico completion",
        description="Print a shell script that completes commands, options, and the names of "
        "servers and tools.",
        epilog="""to enable it in every new shell:
  bash  echo 'source <(portico completion bash)' >> ~/.bashrc
  zsh   echo 'source <(portico completion zsh)' >> ~/.zshrc
  fish  echo 'portico completion fish | source' >> ~/.config/fish/config.fish""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "shell", choices=tuple(_SCRIPTS), metavar="SHELL", help=f"one of {', '.join(_SCRIPTS)}"
    )
    return parser
