"""Whoever asks the head server from inside an event loop keeps that loop going: signals, services and other requests are heard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
import yaml

from collector.agents.nemo_gym.agent import NemoGymAgent
from collector.reverify.gym_server import GymServerVerifier
from tests.nemo.bench import NemoBench
from tests.support.nemo_stub import NemoStub


@pytest.mark.parametrize("who", ["agent", "verifier"])
def test_a_head_server_may_answer_from_the_loop_that_asks_it(
    bench: NemoBench, stub: NemoStub, who: str, tmp_path: Path
) -> None:
    answer = orjson.dumps(yaml.safe_dump(stub.config))

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))
        await writer.drain()
        writer.close()

    async def run() -> None:
        head = await asyncio.start_server(reply, "127.0.0.1", 0)
        settings = {"type": "x", "head_server": {"port": head.sockets[0].getsockname()[1]}, "head_timeout_s": 5}
        plugin = (
            NemoGymAgent(NemoGymAgent.Settings(**settings), bench.settings())
            if who == "agent"
            else GymServerVerifier(GymServerVerifier.Settings(**settings))
        )
        async with head, plugin:
            pass

    asyncio.run(run())
