"""A child's stderr is forwarded as it arrives, without its secrets, and never blocks."""

from portico.upstream.process.stderr_lines import MAX_BYTES_PER_SECOND, StderrLines
from portico.upstream.process.stderr_tail import StderrTail


def test_lines_pass_on_whole_and_without_secrets() -> None:
    heard: list[str] = []
    ring = StderrTail(secrets=["hunter2000"])
    lines = StderrLines(ring, heard.append)
    lines.add(b"starting\nwith hunter")
    lines.add(b"2000 in hand\nand \xff bytes\nhalf a")
    assert heard == ["starting", "with *** in hand", "and \ufffd bytes"]
    assert ring.tail().endswith("half a")


def test_a_flood_is_cut_short_and_said_to_be() -> None:
    heard: list[str] = []
    now = 7.5
    lines = StderrLines(StderrTail(), heard.append, lambda: now)
    line = b"x" * 99 + b"\n"
    for _ in range(200):
        lines.add(line * 100)
    now += 1
    lines.add(b"calm again\n")
    assert heard[-1] == "calm again"
    assert heard[-2].startswith("... ")
    assert sum(map(len, heard)) <= MAX_BYTES_PER_SECOND + len("... 99999 more lines" + "calm again")


def test_a_line_without_an_end_is_not_kept() -> None:
    heard: list[str] = []
    lines = StderrLines(StderrTail(), heard.append)
    for _ in range(100):
        lines.add(b"y" * 10_000)
    lines.add(b"\nnext\n")
    assert heard[-1] == "next"
    assert len(heard[0]) <= 1024
