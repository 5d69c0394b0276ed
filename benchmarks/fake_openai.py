"""A server that speaks OpenAI's completions and takes its time; a process of its own.

python benchmarks/fake_openai.py --latency fixed|tailed [--mean S] [--cap N] [--pieces N]

It prints its address. A reply is a chain of a few sentences and its answer, streamed: the first
sentence comes in `pieces` events from half of the latency on, its end at the latency, and the
rest of the chain right behind it. So a call that is closed at its first sentence and one that
is read to its end take the same time. Beyond `cap` calls at a time it answers 429.
"""

import argparse
import asyncio
import json
import math
import random
import sys

SIGMA = 1.0
"""Of the logarithm of long-tailed latencies: one call in twenty takes over three times the mean."""

EVENT = (
    '{"id":"c","object":"text_completion","created":1,"model":"m",'
    '"choices":[{"index":0,"text":%s,"logprobs":null,"finish_reason":%s}]}'
)


def sentences(number: int) -> list[str]:
    """The whole chain of question `number`: two to five sentences and an answer."""
    chain = [
        f"The town of T{number + hop} was founded by the builders of T{number + hop + 1} "
        "after the great flood."
        for hop in range(2 + number % 4)
    ]
    return [*chain, f"So the answer is: T{number}."]


def question(number: int) -> str:
    return f"Which town do the builders of T{number} come from?"


def steps(number: int) -> int:
    """Calls of question `number`: its sentences and the reader."""
    return len(sentences(number)) + 1


class Fake:
    """What the server does, and has done."""

    def __init__(self, latency: str, mean: float, cap: int, pieces: int) -> None:
        self.latency, self.mean, self.cap, self.pieces = latency, mean, cap, pieces
        self.random = random.Random(13)
        self.open = self.calls = self.refused = 0
        self.waited = 0.0

    def seconds(self) -> float:
        """The next call's latency."""
        seconds = self.mean
        if self.latency == "tailed":
            seconds = self.random.lognormvariate(math.log(self.mean) - SIGMA**2 / 2, SIGMA)
        self.calls += 1
        self.waited += seconds
        return seconds


class Connection(asyncio.Protocol):
    """One client's connection, over which calls come one after the other."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.held = b""
        self.reply: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where replies go."""
        self.out = transport

    def connection_lost(self, _: Exception | None) -> None:
        """Stop generating."""
        if self.reply:
            self.reply.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer once a request is whole."""
        self.held += data
        head, found, body = self.held.partition(b"\r\n\r\n")
        if not found:
            return
        fields = head.lower().split(b"\r\n")
        length = next(int(f[15:]) for f in fields if f.startswith(b"content-length:"))
        if len(body) >= length:
            self.held = body[length:]
            self.reply = asyncio.get_running_loop().create_task(self.answer(body[:length]))

    async def answer(self, body: bytes) -> None:
        """Answer one request, or refuse it."""
        fake = self.fake
        if fake.open >= fake.cap:
            fake.refused += 1
            text = b'{"error":{"message":"Too many requests.","type":"rate_limit"}}'
            self.out.write(
                b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n"
                b"retry-after: 1\r\ncontent-length: %d\r\n\r\n" % len(text) + text
            )
            return
        fake.open += 1
        try:
            await self.stream(json.loads(body)["prompt"])
        finally:
            fake.open -= 1

    async def stream(self, prompt: str) -> None:
        """Write on where the prompt's chain ends."""
        asked, _, chain = prompt.rpartition("\nA:")
        number = int(asked.rpartition(" of T")[2].partition(" ")[0])
        left = sentences(number)[chain.count(".") :]
        words = [f" {word}" for word in left[0].split()]
        seconds, pieces = self.fake.seconds(), min(self.fake.pieces, len(words))
        cuts = [len(words) * i // pieces for i in range(pieces + 1)]
        began = asyncio.get_running_loop().time()
        for i in range(pieces):
            due = seconds if pieces == 1 else seconds / 2 * (1 + i / (pieces - 1))
            await asyncio.sleep(began + due - asyncio.get_running_loop().time())
            if i == 0:
                self.out.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
            events = event("".join(words[cuts[i] : cuts[i + 1]]))
            if i == pieces - 1:
                events += b"".join(event(f" {sentence}") for sentence in left[1:])
                events += event("", '"stop"') + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
            self.out.write(events)


def event(text: str, finish: str = "null") -> bytes:
    return chunk(b"data: %s\n\n" % (EVENT % (json.dumps(text), finish)).encode())


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--latency", choices=["fixed", "tailed"], default="fixed")
    options.add_argument("--mean", type=float, default=0.2)
    options.add_argument("--cap", type=int, default=10**9)
    options.add_argument("--pieces", type=int, default=4)
    fake = Fake(**vars(options.parse_args()))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(fake), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the benchmark closes it
    mean = fake.waited / max(fake.calls, 1)  # a benchmark that failed may have asked nothing
    told = {"calls": fake.calls, "mean": mean, "refused": fake.refused}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
