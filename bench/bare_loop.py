"""The least that asking costs: aiohttp posts each inventory row, parses the reply and appends it. No journal, no retries."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import orjson
import uvloop


async def collect(url: str, rows: int, concurrency: int, out: Path) -> None:
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "What is 2 + 3?"}]})
    left = iter(range(rows))
    with out.open("wb") as file:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

            async def work() -> None:
                for task in left:
                    async with session.post(url, data=body) as reply:
                        found = orjson.loads(await reply.read())
                    file.write(orjson.dumps({"task": task, "response": found}) + b"\n")

            await asyncio.gather(*(work() for _ in range(concurrency)))


if __name__ == "__main__":
    uvloop.run(collect(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
