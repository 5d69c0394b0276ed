"""Repacked weights: the same model, in a form that is multiplied faster."""

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from multihop.cli import parts
from multihop.errors import BadInput, MissingExtra
from multihop.lms import repacked
from multihop.lms.gguf import find_model
from multihop.lms.repacked import fast_weights

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")

from gguf import GGMLQuantizationType as Type  # noqa: E402
from gguf import quants  # noqa: E402

FILE_TYPES = {Type.Q4_0: 2, Type.Q4_1: 3, Type.Q5_0: 8, Type.Q5_1: 9, Type.Q8_0: 7}


def model(path: Path, kind=Type.Q4_1, *, alignment=32, file_type=None, rows=48, extra=()) -> Path:
    """A file with every kind of tensor that a small model has; 64 weights a row."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    writer.add_context_length(128)
    writer.add_token_list(["<s>", "caf\u00e9", b"\xff\xfe"])  # tokens need not be UTF-8
    writer.add_token_scores([0.1, -1e9, 0.0])
    writer.add_file_type(FILE_TYPES[kind] if file_type is None else file_type)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ messages }}")
    writer.add_tensor("norm.weight", random.normal(size=7).astype(np.float32))
    values = random.normal(size=(rows, 64)).astype(np.float32)
    values[0] = 0  # blocks without a scale
    writer.add_tensor("ffn.weight", quants.quantize(values, kind), raw_dtype=kind)
    small = random.normal(size=(3, 32)).astype(np.float32)
    for name, other in (("embd.weight", Type.Q8_0), *extra):
        writer.add_tensor(name, quants.quantize(small, other), raw_dtype=other)
    writer.add_tensor("last.weight", quants.quantize(small, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(path: Path) -> dict:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def entries(path: Path) -> dict:
    fields = gguf.GGUFReader(path).fields
    return {
        name: (field.types, [bytes(part) for part in field.parts])
        for name, field in fields.items()
        if name != "general.file_type"
    }


@pytest.mark.parametrize("kind", [Type.Q4_1, Type.Q5_1])
@pytest.mark.parametrize("alignment", [32, 256])
def test_slow_tensors_become_what_quantizing_their_values_gives(tmp_path, kind, alignment):
    path = model(tmp_path / "m.gguf", kind, alignment=alignment)
    old, new = tensors(path), tensors(fast_weights(path))

    assert list(new) == list(old)
    for name, tensor in old.items():
        assert list(new[name].shape) == list(tensor.shape)
        if tensor.tensor_type == kind:
            assert new[name].tensor_type == Type.Q8_0
            values = quants.dequantize(tensor.data, kind)
            expected = quants.quantize(values, Type.Q8_0)
            off = abs(quants.dequantize(new[name].data, Type.Q8_0) - values).reshape(-1, 32)
            largest = abs(values).reshape(-1, 32).max(axis=1, keepdims=True)
            assert (off <= largest / 220).all()
        else:
            assert new[name].tensor_type == tensor.tensor_type
            expected = tensor.data
        assert bytes(new[name].data) == bytes(expected)


def test_every_entry_of_the_header_is_kept_but_the_file_type(tmp_path):
    path = model(tmp_path / "m.gguf")
    copy = fast_weights(path)

    assert entries(copy) == entries(path)
    assert gguf.GGUFReader(copy).get_field("general.file_type").contents() == 7


def test_tensors_larger_than_a_piece_are_written_whole(tmp_path, monkeypatch):
    path = model(tmp_path / "m.gguf", rows=48)
    whole = fast_weights(path).read_bytes()
    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setattr(repacked, "_CHUNK", 7)

    assert fast_weights(path).read_bytes() == whole


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q5_0, Type.Q8_0])
def test_a_file_with_fast_kernels_is_used_itself(tmp_path, kind):
    path = model(tmp_path / "m.gguf", kind)
    assert fast_weights(path) == path
    assert not (tmp_path / "home").exists()


def test_a_file_that_is_mostly_fast_is_used_itself(tmp_path):
    path = model(tmp_path / "m.gguf", Type.Q4_1, rows=1, extra=[("a", Type.Q8_0), ("b", Type.F32)])
    assert fast_weights(path) == path


def test_a_file_whose_copy_would_be_too_large_is_used_itself(tmp_path, monkeypatch):
    path = model(tmp_path / "m.gguf")
    size = fast_weights(path).stat().st_size
    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(tmp_path / "other"))

    monkeypatch.setattr(repacked, "MOST", size - 1)
    assert fast_weights(path) == path
    monkeypatch.setattr(repacked, "MOST", size)
    assert fast_weights(path) != path


def test_the_copy_is_written_once_and_found_for_the_same_content_anywhere(tmp_path, monkeypatch):
    path = model(tmp_path / "m.gguf")
    copy = fast_weights(path)
    os.utime(copy, (1, 1))
    monkeypatch.setattr(repacked, "_write_draft", None)

    elsewhere = tmp_path / "n.gguf"
    elsewhere.write_bytes(path.read_bytes())
    assert fast_weights(elsewhere) == copy
    state = copy.stat()
    assert (state.st_mtime, state.st_atime > 1) == (1, True)  # used now, written then


def test_other_content_has_another_copy(tmp_path):
    copy = fast_weights(model(tmp_path / "m.gguf"))
    assert fast_weights(model(tmp_path / "m.gguf", rows=49)) != copy


def test_preparing_is_told_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "multihop.lms.repacked")
    path = model(tmp_path / "m.gguf")
    fast_weights(path)
    fast_weights(path)
    assert caplog.messages == ["Preparing m.gguf once, for faster use ..."]


def test_the_command_line_tells_it_on_stderr(tmp_path, monkeypatch, capsys):
    log = logging.getLogger("multihop.lms.repacked")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "level", logging.NOTSET)
    (tmp_path / "script.json").write_text('{"rules": []}')
    path = model(tmp_path / "m.gguf")

    for _ in range(2):
        parts.open_lm(f"scripted:{tmp_path / 'script.json'}")
    fast_weights(path)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Preparing m.gguf once, for faster use ...\n")
    log.setLevel(logging.NOTSET)  # forgets which levels it has let pass


def test_without_a_place_the_file_itself_is_used_and_a_warning_says_so_once(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MULTIHOP_CACHE_DIR", str(tmp_path / "file"))
    path = model(tmp_path / "m.gguf")

    assert [fast_weights(path), fast_weights(path)] == [path, path]
    [warning] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(f"{path} is used as it is")


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, caplog):
    def full(source, target, tensor):
        target.write(b"begun")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(repacked, "_copy", full)
    path = model(tmp_path / "m.gguf")

    assert fast_weights(path) == path
    assert "No space left on device" in caplog.text
    assert list((tmp_path / "home/multihop/weights").iterdir()) == []


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupted(source, target, tensor):
        raise KeyboardInterrupt

    monkeypatch.setattr(repacked, "_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fast_weights(model(tmp_path / "m.gguf"))
    assert list((tmp_path / "home/multihop/weights").iterdir()) == []


def test_a_copy_is_whole_from_the_moment_it_has_its_name(tmp_path, monkeypatch):
    path = model(tmp_path / "m.gguf")
    whole = fast_weights(path)
    size = whole.stat().st_size
    whole.unlink()
    seen = []
    copying = repacked._copy

    def watched(*args):
        copying(*args)
        seen.append(whole.exists())

    monkeypatch.setattr(repacked, "_copy", watched)
    assert fast_weights(path) == whole
    assert seen == [False] * 4
    assert whole.stat().st_size == size


def test_threads_that_begin_together_end_with_one_whole_copy(tmp_path):
    path = model(tmp_path / "m.gguf")
    whole = fast_weights(path)
    content = whole.read_bytes()
    whole.unlink()
    found = []
    threads = [threading.Thread(target=lambda: found.append(fast_weights(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [whole] * 4
    assert list(whole.parent.iterdir()) == [whole]
    assert whole.read_bytes() == content


def test_processes_that_begin_together_end_with_one_whole_copy(tmp_path):
    path = model(tmp_path / "m.gguf")
    whole = fast_weights(path)
    content = whole.read_bytes()
    whole.unlink()
    script = (
        "import sys; from pathlib import Path; from multihop.lms.repacked import fast_weights\n"
        "import gguf.quants\n"
        "print(flush=True); sys.stdin.readline()\n"
        "copy = fast_weights(Path(sys.argv[1])); print(copy, len(copy.read_bytes()))\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(3)]
    for process in running:
        process.stdout.readline()  # ready
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in running]

    assert said == [[str(whole), str(len(content))]] * 3
    assert list(whole.parent.iterdir()) == [whole]
    assert whole.read_bytes() == content


def test_copies_and_old_drafts_make_room_for_the_newest(tmp_path, monkeypatch):
    first = fast_weights(model(tmp_path / "a.gguf"))
    second = fast_weights(model(tmp_path / "b.gguf", rows=49))
    draft = first.with_name("left.draft")
    draft.write_bytes(b"x" * 100)
    for age, file in enumerate((first, draft, second)):
        os.utime(file, (age, age))
    assert fast_weights(tmp_path / "a.gguf") == first  # used after the others

    monkeypatch.setattr(repacked, "MOST", 3 * first.stat().st_size)
    third = fast_weights(model(tmp_path / "c.gguf", rows=50))
    assert set(first.parent.iterdir()) == {first, third}


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = model(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadInput, match="cut off"):
        fast_weights(path)


def test_without_gguf_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.delitem(sys.modules, "gguf.quants", raising=False)
    path = model(tmp_path / "m.gguf")
    with pytest.raises(MissingExtra, match=r"multihop\[local\]"):
        fast_weights(path)


@pytest.mark.embedded
def test_the_default_model_is_repacked_and_says_so_in_its_identity():
    pytest.importorskip("xllamacpp")
    from multihop.lms.local import LocalLM

    own, fast = LocalLM(repack=False), LocalLM()
    assert own.path == fast.path == find_model("SmolLM2-135M-Instruct")
    assert fast.identity["weights"] == f"{own.identity['weights']} as q8_0-1"


@pytest.mark.embedded
async def test_repacked_weights_give_the_scores_of_the_file_nearly():
    pytest.importorskip("xllamacpp")
    from multihop.lms.base import Prompt, Request, complete
    from multihop.lms.local import LocalLM

    prompt = "Q: Where is Lima?\nA: Lima is in Peru.\nQ: Where is Oslo?\nA: Oslo is in"
    scores = []
    for repack in (True, False):
        lm = LocalLM(window=256, threads=1, repack=repack)
        reply = await complete(lm, Request(Prompt(prompt), 1, logprobs=True))
        scores.append((reply.samples[0].text, reply.samples[0].logprobs[0]))
        await lm.aclose()
    assert scores[0][0] == scores[1][0] == " Norway"
    assert 0 < abs(scores[0][1] - scores[1][1]) < 0.05
