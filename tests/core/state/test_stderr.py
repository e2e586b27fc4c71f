"""Writing a report never waits for its reader."""

import os

import pytest

from portico.core.state.stderr import Stderr

PLENTY = 5_000


def test_what_is_said_is_there_at_once_while_there_is_room() -> None:
    read, write = os.pipe()
    Stderr(write).write_line("hello \udcff")
    assert os.read(read, 100) == b"hello \\udcff\n"
    os.close(read)
    os.close(write)


def test_a_reader_that_stands_still_holds_nobody_up_and_misses_the_oldest() -> None:
    read, write = os.pipe()
    err = Stderr(write)
    for number in range(PLENTY):
        err.write_line(f"{number} " + "z" * 200)
    first = os.read(read, 65536).splitlines()
    rest = b""
    while rest[-300:].find(b"%d " % (PLENTY - 1)) < 0:
        rest += os.read(read, 65536)
    assert first[0].startswith(b"0 ")
    numbers = [int(line.split()[0]) for line in rest.splitlines()[1:] if line]
    assert numbers == sorted(numbers)
    assert numbers[-1] == PLENTY - 1
    assert len(first) + len(numbers) < PLENTY
    err.flush()
    os.close(read)
    err.write_line("to nobody")
    os.close(write)


def test_a_long_line_comes_whole_and_before_what_is_said_after_it() -> None:
    read, write = os.pipe()
    err = Stderr(write)
    err.write_line("y" * 200_000)
    err.write_line("after")
    found = b""
    while not found.endswith(b"after\n"):
        found += os.read(read, 65536)
    assert found == b"y" * 200_000 + b"\nafter\n"
    err.flush()
    os.close(read)
    os.close(write)


def test_what_is_closed_is_let_be() -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    Stderr(write).write_line("nobody hears this")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write)
