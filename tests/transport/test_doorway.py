"""The selector that serves one descriptor itself keeps nobody else waiting."""

import asyncio
import os

from portico.transport.doorway import attend, new_event_loop


def test_a_descriptor_is_served_without_the_loop_and_timers_still_run() -> None:
    async def serve() -> tuple[list[bytes], bool]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        taken: list[bytes] = []
        by_loop = loop.create_future()

        def take() -> bool:
            taken.append(os.read(read, 1))
            if taken[-1] == b"!":
                by_loop.set_result(True)
                return False  # the loop has a future to look after
            os.write(write, b"!" if len(taken) > 1000 else b"x")
            return True

        loop.add_reader(read, lambda: None)
        attend(read, take)
        os.write(write, b"x")
        done = await asyncio.wait_for(by_loop, 20)
        attend(read, None)
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return taken, done

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        taken, done = runner.run(serve())
    assert done
    assert len(taken) == 1002


def test_a_busy_descriptor_does_not_starve_timers_or_other_threads() -> None:
    async def serve() -> list[str]:
        loop = asyncio.get_running_loop()
        read, write = os.pipe()
        heard: list[str] = []

        def take() -> bool:
            os.write(write, os.read(read, 1))  # always ready again
            return True

        loop.add_reader(read, lambda: None)
        attend(read, take)
        os.write(write, b"x")
        await asyncio.sleep(0.05)
        heard.append("timer")
        heard.append(await asyncio.to_thread(lambda: "thread"))
        attend(read, None)
        loop.remove_reader(read)
        os.close(read)
        os.close(write)
        return heard

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(serve(), 20)) == ["timer", "thread"]


def test_other_event_loops_are_left_alone() -> None:
    async def serve() -> None:
        attend(0, lambda: True)

    asyncio.run(serve())
