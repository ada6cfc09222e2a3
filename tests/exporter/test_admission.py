"""Looks begin as fast as the event loop keeps up, in order, and an overload does not feed itself."""

from __future__ import annotations

import asyncio

from llm_exporter.admission import LEAST, MOST, START, Admission


async def test_a_small_fleet_never_waits() -> None:
    admission = Admission()
    for _ in range(100):
        for _ in range(int(START)):
            await asyncio.wait_for(admission.turn(), 0.1)
        admission.tick(0.0)


async def test_turns_come_in_order_and_as_many_per_tick_as_the_rate() -> None:
    admission = Admission()
    begun: list[int] = []

    async def look(number: int) -> None:
        await admission.turn()
        begun.append(number)

    tasks = [asyncio.create_task(look(number)) for number in range(200)]
    await asyncio.sleep(0)
    assert begun == list(range(50))
    admission.tick(0.2)  # neither punctual nor late: the rate stays
    await asyncio.sleep(0)
    assert begun == list(range(100))
    for _ in range(10):
        admission.tick(1.0)
    assert admission.rate == LEAST
    await asyncio.gather(*tasks)
    assert begun == list(range(200))


async def test_a_late_loop_admits_less_and_a_punctual_one_recovers() -> None:
    admission = Admission()
    for _ in range(50):
        admission.tick(1.0)
    assert admission.rate == LEAST
    for _ in range(200):
        admission.tick(0.0)
    assert admission.rate == MOST


async def test_one_who_gave_up_takes_no_turn() -> None:
    admission = Admission()
    for _ in range(int(START)):
        await admission.turn()
    gone, stays = asyncio.create_task(admission.turn()), asyncio.create_task(admission.turn())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    for _ in range(20):
        admission.tick(1.0)
    await asyncio.wait_for(stays, 1)
    assert gone.cancelled()
