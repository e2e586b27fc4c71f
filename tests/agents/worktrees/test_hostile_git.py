"""What an agent leaves in its worktree and in the repository makes Portico's git run nothing."""

from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.agents.delegation.boxed_agents import Box
from tests.agents.worktrees.repositories import git, names

CHANGE = "echo more >> a.txt; echo new > new.txt"
PROGRAMS = {
    "clean filter": "git config filter.x.clean \"$evil; cat\"; echo '* filter=x' > .gitattributes",
    "filter process": (
        'git config filter.x.process "$evil; cat"; '
        "echo '* filter=x' > $(git rev-parse --git-common-dir)/info/attributes"
    ),
    "smudge filter": (
        'git config filter.x.smudge "$evil; cat"; '
        "echo '* filter=x' > $(git rev-parse --git-common-dir)/info/attributes"
    ),
    "monitor": 'git config core.fsmonitor "$evil; false"',
    "hooks": (
        "cd $(git rev-parse --git-common-dir)/hooks; "
        "for name in post-checkout reference-transaction post-index-change pre-commit; do "
        "printf '#!/bin/sh\\n%s\\n' \"$evil\" > $name; chmod 755 $name; done"
    ),
    "hooks elsewhere": (
        "mkdir hooks; printf '#!/bin/sh\\n%s\\n' \"$evil\" > hooks/post-checkout; "
        'chmod 755 hooks/post-checkout; git config core.hooksPath "$PWD/hooks"'
    ),
    "merge driver": (
        'git config merge.x.driver "$evil; true"; git config merge.default x; '
        "echo '* merge=x' > $(git rev-parse --git-common-dir)/info/attributes"
    ),
    "external diff": 'git config diff.external "$evil; true"',
    "diff driver": (
        'git config diff.x.command "$evil; true"; git config diff.x.textconv "$evil; cat"; '
        "echo '* diff=x' > .gitattributes"
    ),
    "include": (
        'printf \'[filter "x"]\\n\\tclean = "%s; cat"\\n\' "$evil" > included; '
        "git config include.path \"$PWD/included\"; echo '* filter=x' > .gitattributes"
    ),
    "config of the worktree": (
        "git config extensions.worktreeConfig true; "
        'git config --worktree filter.x.clean "$evil; cat"; '
        "git config --worktree core.bare false; echo '* filter=x' > .gitattributes"
    ),
    "link to a config": (
        "cd $(git rev-parse --git-common-dir); cp config other; "
        'git config --file other filter.x.clean "$evil; cat"; ln -sf other config; '
        "echo '* filter=x' > info/attributes"
    ),
    "signing": 'git config gpg.program "$evil"; git config commit.gpgSign true',
    "helpers": (
        'git config core.editor "$evil"; git config core.pager "$evil"; '
        'git config core.sshCommand "$evil"; git config alias.status "!$evil"; '
        'git config credential.helper "!$evil"; git config interactive.diffFilter "$evil"; '
        'git config core.alternateRefsCommand "$evil"; git config trailer.x.command "$evil"; '
        'git config uploadpack.packObjectsHook "$evil"'
    ),
}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return Box(tmp_path)


@pytest.mark.parametrize("command", PROGRAMS.values(), ids=PROGRAMS)
def test_no_setting_of_an_agent_becomes_a_program(box: Box, command: str) -> None:
    task = box.work(f"{CHANGE}; {command}")
    (box.repo / "a.txt").write_text("mine\none\n")  # so that there is something to merge
    assert main(["tasks", "diff", task.id]) == 0
    assert main(["tasks", "collect", task.id]) == 0
    box.untouched()
    assert (box.repo / "a.txt").read_text() == "mine\none\nmore\n"
    assert "new.txt" in names(box.repo)
    again = box.work("echo branch > b.txt")  # in a repository that has these settings now
    assert main(["tasks", "collect", again.id, "--branch"]) == 0
    box.untouched()
    last = box.work("echo last > c.txt")
    assert main(["tasks", "discard", last.id, "--yes"]) == 0
    box.untouched()


INNER = (
    "git init -q sub; cd sub; echo x > x; git add x; "
    "git -c user.name=A -c user.email=a@b commit -qm x; "
    'git config core.fsmonitor "$evil; false"; git config filter.x.clean "$evil; cat"; '
    "echo '* filter=x' > .git/info/attributes; touch x; cd ..; "
)


@pytest.mark.parametrize("more", ["", "git add sub; "])
def test_a_repository_inside_a_worktree_runs_nothing(
    box: Box, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = box.work(f"{CHANGE}; {INNER}{more}")
    assert main(["tasks", "diff", task.id]) == 0
    for how in ((), ("--branch",)):
        assert main(["tasks", "collect", task.id, *how]) == 1
        assert "repository of its own, which cannot be collected" in capsys.readouterr().err
    box.untouched()
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    box.untouched()


def test_a_submodule_of_the_repository_runs_nothing(box: Box, tmp_path: Path) -> None:
    git(box.repo, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(box.repo, "commit", "-qm", "submodule")
    task = box.work(f"{CHANGE}; rmdir sub 2> /dev/null || true; {INNER}")
    main(["tasks", "diff", task.id])
    main(["tasks", "collect", task.id])
    box.untouched()


PROMISOR = (
    "git config extensions.partialClone evil; git config remote.evil.promisor true; "
    "git config remote.evil.url $(git rev-parse --git-common-dir); "
    'git config remote.evil.uploadpack "$evil; sleep 1000 #"; '
    "git config core.repositoryFormatVersion 1; git config protocol.allow always; "
    "git config protocol.file.allow always; "
)
LOSE = "rm -f $(git rev-parse --git-common-dir)/objects/$(git rev-parse {} | sed 's|^..|&/|'); "


@pytest.mark.parametrize("lost", ["HEAD:b.txt", "HEAD^{tree}", "HEAD"])
def test_a_missing_object_is_not_fetched(
    box: Box, lost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = box.work(f"{CHANGE}; echo other > b.txt; {PROMISOR}{LOSE.format(lost)}")
    for words in (("diff",), ("collect",), ("collect", "--branch")):
        main(["tasks", words[0], task.id, *words[1:]])
        box.untouched()
    main(["tasks", "discard", task.id, "--yes"])
    box.untouched()


def test_a_head_that_is_missing_is_not_fetched(box: Box) -> None:
    head = "echo 1111111111111111111111111111111111111111 > $(git rev-parse --git-dir)/HEAD"
    task = box.work(f"{CHANGE}; {PROMISOR}{head}")
    assert main(["tasks", "collect", task.id]) == 0
    box.untouched()
    assert (box.repo / "a.txt").read_text() == "one\nmore\n"
