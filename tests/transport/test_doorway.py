"""The selector that serves one descriptor itself keeps nobody else waiting."""

import asyncio
import os

from portico.transport.doorway import DoorwayLoop


def test_a_descriptor_is_served_without_the_loop_and_timers_still_run() -> None:
    async def serve() -> tuple[list[bytes], bool]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        taken: list[bytes] = []
        by_loop = loop.create_future()

        def take() -> None:
            taken.append(os.read(read, 1))
            if taken[-1] == b"!":
                by_loop.set_result(True)  # now the loop has something to do
            else:
                os.write(write, b"!" if len(taken) > 1000 else b"x")

        loop.add_reader(read, take)
        os.write(write, b"x")
        done = await asyncio.wait_for(by_loop, 20)
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return taken, done

    with asyncio.Runner(loop_factory=DoorwayLoop) as runner:
        taken, done = runner.run(serve())
    assert done
    assert len(taken) == 1002


def test_a_busy_descriptor_does_not_starve_timers_or_other_threads() -> None:
    async def serve() -> list[str]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        heard: list[str] = []

        def take() -> None:
            os.write(write, os.read(read, 1))  # always ready again

        loop.add_reader(read, take)
        os.write(write, b"x")
        await asyncio.sleep(0.05)
        heard.append("timer")
        heard.append(await asyncio.to_thread(lambda: "thread"))
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return heard

    with asyncio.Runner(loop_factory=DoorwayLoop) as runner:
        assert runner.run(asyncio.wait_for(serve(), 20)) == ["timer", "thread"]


def test_a_timer_set_by_a_reader_rings_and_one_that_fails_hurts_nobody() -> None:
    async def serve() -> tuple[list[str], list[str]]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        heard: list[str] = []
        complaints: list[str] = []
        loop.set_exception_handler(lambda _, context: complaints.append(str(context["exception"])))
        rung = asyncio.Event()

        def take() -> None:
            heard.append(os.read(read, 1).decode())
            if heard == ["a"]:
                raise ValueError("a bad reader")
            loop.call_later(0.01, rung.set)

        loop.add_reader(read, take)
        os.write(write, b"a")
        await asyncio.sleep(0.05)
        os.write(write, b"b")
        await asyncio.wait_for(rung.wait(), 20)
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return heard, complaints

    with asyncio.Runner(loop_factory=DoorwayLoop) as runner:
        assert runner.run(serve()) == (["a", "b"], ["a bad reader"])


def test_what_the_loop_was_given_comes_before_what_is_read_next() -> None:
    async def serve() -> list[str]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        heard: list[str] = []
        done = asyncio.Event()

        def take() -> None:
            heard.append(os.read(read, 1).decode())
            if heard[-1] == "b":
                done.set()

        async def work() -> None:
            os.write(write, b"b")  # an answer, say, to which the client replies at once

        loop.add_reader(read, take)
        os.write(write, b"a")
        await asyncio.sleep(0)
        asyncio.create_task(work()).add_done_callback(lambda _: heard.append("over"))
        await asyncio.wait_for(done.wait(), 20)
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return heard

    with asyncio.Runner(loop_factory=DoorwayLoop) as runner:
        assert runner.run(serve()) == ["a", "over", "b"]
