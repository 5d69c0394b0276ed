"""The `openai` backend against a real vLLM server; docs/scale.md says how to start one.

MULTIHOP_TEST_VLLM=MODEL@http://127.0.0.1:8000/v1 python -m pytest tests/lms/test_vllm.py
MULTIHOP_TEST_VLLM_ADAPTER=NAME   of a LoRA adapter that the server has loaded
"""

import asyncio
import os

import httpx
import pytest

from multihop import evaluation, names
from multihop.lms.base import Prompt, Request, complete
from multihop.lms.layers import layered
from multihop.prompts.demonstrations import Demonstration
from multihop.strategies import Demonstrations, make
from multihop.testing import TitleRetriever
from multihop.text import Passage, Question

pytestmark = pytest.mark.vllm

TARGET = os.environ.get("MULTIHOP_TEST_VLLM", "")  # read before a fixture hides it
ADAPTER = os.environ.get("MULTIHOP_TEST_VLLM_ADAPTER", "")
RIDE = Passage("lg", "Lost Gravity", "Lost Gravity is a roller coaster built by Mack Rides.")
SHOTS = Demonstrations.from_cot(
    [Demonstration("Q: Who wrote Ode?\nA: Ode was written by Ida. So the answer is: Ida.")]
)


@pytest.fixture
def target() -> str:
    if not TARGET:
        pytest.skip("MULTIHOP_TEST_VLLM names no server")
    return TARGET


async def test_a_text_is_streamed_and_its_tokens_are_told(target) -> None:
    lm = names.open_lm(f"openai:{target}", {"api": "completions"})
    try:
        prompt = Prompt("The capital of France is Paris. The capital of Italy is")
        call = (await complete(lm, Request(prompt, max_tokens=8))).call
        assert call.outputs[0].strip()
        assert call.tokens.prompt
        assert call.tokens.prompt > 8
        assert call.tokens.generated == 8
        reply = await complete(lm, Request(prompt, max_tokens=64), until=lambda text: len(text) > 5)
        early = reply.call
        assert early.tokens.generated
        assert early.tokens.generated < 64  # closed early, and counted all the same
    finally:
        await lm.aclose()


async def test_a_common_beginning_is_found_in_the_prefix_cache(target) -> None:
    lm = names.open_lm(f"openai:{target}", {"api": "completions"})
    try:
        block = "Rain fell on the old mill, and nobody came to mend its wheel. " * 20
        cached = []
        for end in ("First.", "Second."):
            call = (await complete(lm, Request(Prompt(block + end), max_tokens=2))).call
            cached.append(call.tokens.cached)
        assert cached[1], "was it started with --enable-prompt-tokens-details?"
        assert call.tokens.prompt
        assert cached[1] > call.tokens.prompt / 2
    finally:
        await lm.aclose()


async def test_questions_at_once_are_answered_by_the_loop(target, tmp_path) -> None:
    lm = layered(names.open_lm(f"openai:{target}", {"api": "completions"}), in_flight=8)
    ircot = make(
        "ircot",
        lm=lm,
        retriever=TitleRetriever(RIDE),
        reader="cot",
        demonstrations=SHOTS,
        max_steps=2,
        max_tokens=24,
    )
    asked = [
        Question(f"Who built Lost Gravity, number {n}?", id=f"q{n}", answers=("Mack Rides",))
        for n in range(8)
    ]
    try:
        assert await evaluation.evaluate(asked, ircot, tmp_path, concurrency=8) == 0
    finally:
        await lm.aclose()
    report = evaluation.score(tmp_path)
    assert (report.finished, report.failed) == (8, 0)
    assert report.means["prompt_tokens"].unscored == 0
    assert report.means["generated_tokens"].value


async def test_an_adapter_is_asked_for_by_its_name(target) -> None:
    if not ADAPTER:
        pytest.skip("MULTIHOP_TEST_VLLM_ADAPTER names no adapter")
    lm = names.open_lm(f"openai:{target}", {"api": "completions"})
    try:
        request = Request(Prompt("Q: Who?\nA:"), max_tokens=4, adapter=ADAPTER)
        call = (await complete(lm, request)).call
        assert call.outputs[0]
        assert call.adapter == ADAPTER
    finally:
        await lm.aclose()


async def test_the_metrics_that_the_docs_speak_of_are_there(target) -> None:
    address = target.rpartition("@")[2].removesuffix("/v1") + "/metrics"
    told = (await asyncio.to_thread(httpx.get, address)).text
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert f"vllm:{name}" in told
    for name in ("prefix_cache_hits", "prefix_cache_queries"):
        assert f"vllm:{name}" in told
