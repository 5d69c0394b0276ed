"""Training runs on a tiny model: what is computed, and that every end can be gone on from."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from multihop.errors import BadInput
from multihop.training import lessons as files
from multihop.training import sft
from multihop.training.config import Config, Data, Model, Train
from tiny_hf import lessons, tiny_llama

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

# More threads than free processors would wait for one another at each small product.
TRAIN = Train(
    epochs=2, lr=0.02, accumulation=2, valid_every=2, save_minutes=1e6, patience=0, threads=1
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def config(tiny, **settings) -> Config:
    model = Model(base=tiny, r=4, alpha=8.0, **settings.pop("model", {}))
    return Config(model=model, data=Data(lessons="l"), train=replace(TRAIN, **settings))


def curves(folder):
    return [json.loads(line) for line in (folder / "curves.jsonl").read_text().splitlines()]


def numbers(folder):
    """What does not depend on the time."""
    return [
        {k: line[k] for k in ("step", "epoch", "loss", "skills", "lr", "valid") if k in line}
        for line in curves(folder)
    ]


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def undisturbed(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    told = []
    result = sft.train(config(tiny), lessons(10), lessons(3), folder, tell=told.append)
    return folder, result, told


def test_a_run_learns_validates_and_keeps_its_best(undisturbed) -> None:
    folder, result, told = undisturbed
    lines = curves(folder)
    losses = [line["loss"] for line in lines if "loss" in line]
    checks = [line for line in lines if "valid" in line]
    assert len(losses) == 10
    assert [line["step"] for line in checks] == [2, 4, 6, 8, 10]
    assert checks[-1]["valid"][""] < checks[0]["valid"][""]
    best = min(checks, key=lambda line: line["valid"][""])
    assert result.finished
    assert not result.stopped_early
    assert (result.step, result.steps) == (best["step"], 10)
    assert result.valid == best["valid"]
    assert set(result.valid) == {"", "next", "read"}
    assert (result.best / "adapter_config.json").is_file()
    assert [progress.step for progress in told if progress.loss is not None] == [*range(1, 11)]
    assert told[-1].valid == checks[-1]["valid"]
    assert all(line["tokens_per_second"] > 0 and line["rss_mb"] > 0 for line in lines)
    assert lines[0]["lr"] > lines[-2]["lr"]
    for line in lines:
        if "loss" in line:  # a weighted mean lies between its parts
            parts = line["skills"].values()
            assert len(parts) == 2
            assert min(parts) <= line["loss"] <= max(parts)


def test_a_finished_run_is_not_done_again(undisturbed, tiny) -> None:
    folder, result, _ = undisturbed
    before = (folder / "curves.jsonl").read_bytes()
    again = sft.train(config(tiny), lessons(10), lessons(3), folder)
    assert again == result
    assert (folder / "curves.jsonl").read_bytes() == before


@pytest.mark.parametrize("stop", [3, 7])
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(
    undisturbed, tiny, tmp_path, stop
) -> None:
    def interrupt(progress: sft.Progress) -> None:
        if progress.step == stop and progress.loss is not None:
            signal.raise_signal(signal.SIGINT)

    first = sft.train(config(tiny), lessons(10), lessons(3), tmp_path, tell=interrupt)
    assert not first.finished
    assert first.steps in (stop, stop + 1)  # the step at work is finished
    second = sft.train(config(tiny), lessons(10), lessons(3), tmp_path)
    assert second.finished
    assert numbers(tmp_path) == numbers(undisturbed[0])
    for name, tensor in weights(undisturbed[1].best).items():
        assert torch.equal(tensor, weights(second.best)[name]), name


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tiny_hf import lessons
from multihop.training import sft
from test_sft import config
from dataclasses import replace

chosen = config(sys.argv[2])
chosen = replace(chosen, train=replace(chosen.train, save_minutes=0.0))
saved = Path(sys.argv[3]) / "checkpoints"
def tell(progress):
    if progress.step == 6 and progress.loss is not None:
        os.kill(os.getpid(), signal.SIGKILL)
sft.train(chosen, lessons(10), lessons(3), Path(sys.argv[3]), tell=tell)
"""


def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(undisturbed, tiny, tmp_path) -> None:
    from multihop.training.loop import last_checkpoint

    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, str(Path(here).parent)])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, here, tiny, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = last_checkpoint(tmp_path / "checkpoints")
    assert kept is not None
    assert kept.name == "checkpoint-5"
    torn = tmp_path / "checkpoints" / "checkpoint-6"
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"epo')
    with (tmp_path / "curves.jsonl").open("a") as file:
        file.write('{"step": 6, "lo')
    again = sft.train(config(tiny), lessons(10), lessons(3), tmp_path)
    assert again.finished
    assert numbers(tmp_path) == numbers(undisturbed[0])
    for name, tensor in weights(undisturbed[1].best).items():
        assert torch.equal(tensor, weights(again.best)[name]), name


def test_a_run_begins_anew_when_told_to(undisturbed, tiny, tmp_path) -> None:
    def interrupt(progress: sft.Progress) -> None:
        if progress.step == 2:
            signal.raise_signal(signal.SIGINT)

    other = config(tiny, lr=0.5)
    assert not sft.train(other, lessons(4), [], tmp_path, tell=interrupt).finished
    with pytest.raises(BadInput, match=r"train\.lr"):
        sft.train(config(tiny), lessons(10), lessons(3), tmp_path)
    sft.train(config(tiny), lessons(10), lessons(3), tmp_path, resume=False)
    assert numbers(tmp_path) == numbers(undisturbed[0])


def test_training_ends_when_validation_gets_no_better(tiny, tmp_path) -> None:
    chosen = config(tiny, lr=0.3, schedule="constant", epochs=20, valid_every=1, patience=2)
    result = sft.train(chosen, lessons(4), lessons(8)[4:], tmp_path)
    checks = [line["valid"][""] for line in curves(tmp_path) if "valid" in line]
    assert result.finished
    assert result.stopped_early
    assert result.steps == len(checks) < 40
    assert checks.index(min(checks)) == len(checks) - 3 == result.step - 1
    again = sft.train(chosen, lessons(4), lessons(8)[4:], tmp_path)
    assert again == result


def gradients(tiny, tmp_path, lessons_train, **settings):
    """Of the first step."""
    from multihop.training import loop

    chosen = config(tiny, epochs=1, warmup=0.0, clip=1e9, valid_every=0, **settings)
    found = {}

    class Look(loop._Trainer):
        def create_optimizer(self, *args, **kwargs):
            optimizer = super().create_optimizer(*args, **kwargs)
            optimizer.register_step_pre_hook(self.look)
            return optimizer

        def look(self, *_):
            for name, p in self.model.named_parameters():
                if p.grad is not None and name not in found:
                    found[name] = p.grad.clone()

    kept = loop._Trainer
    loop._Trainer = Look
    try:
        sft.train(chosen, lessons_train, [], tmp_path)
    finally:
        loop._Trainer = kept
    (line,) = curves(tmp_path)
    return line["loss"], found


def test_a_step_is_the_same_however_its_examples_are_batched(tiny, tmp_path) -> None:
    made = [*lessons(5), replace(lessons(6)[5], examples=lessons(6)[5].examples[:1])]
    loss, whole = gradients(tiny, tmp_path / "a", made, accumulation=6)
    assert whole
    ways = [
        {"accumulation": 2, "batch": 3},
        {"accumulation": 1, "batch": 6},
        {"accumulation": 16, "batch": 1, "pack": False},
        {"accumulation": 4, "batch": 4, "pack": False},
        {"accumulation": 6, "max_tokens": 80},
        {"accumulation": 6, "model": {"attention": "eager"}},
        {"accumulation": 6, "checkpointing": True},
    ]
    for number, way in enumerate(ways):
        if way.get("max_tokens"):
            way["accumulation"] = 99
        other, gradient = gradients(tiny, tmp_path / str(number), made, **way)
        assert other == pytest.approx(loss, rel=1e-5), way
        assert gradient.keys() == whole.keys()
        for name, tensor in whole.items():
            assert torch.allclose(gradient[name], tensor, rtol=1e-3, atol=1e-6), (way, name)


def test_a_weight_counts_as_often(tiny, tmp_path) -> None:
    first, *rest = lessons(1)[0].examples
    once = [replace(lessons(1)[0], examples=(replace(first, weight=3.0), *rest))]
    thrice = [replace(lessons(1)[0], examples=(first, first, first, *rest))]
    one, gradient = gradients(tiny, tmp_path / "a", once)
    three, same = gradients(tiny, tmp_path / "b", thrice)
    assert one == pytest.approx(three, rel=1e-6)
    for name, tensor in gradient.items():
        assert torch.allclose(same[name], tensor, rtol=1e-3, atol=1e-6), name


def test_a_whole_model_is_trained_and_saved(tiny, tmp_path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = lessons(6)
    chosen = config(tiny, model={"method": "full"}, lr=0.003)
    sizes = []
    result = sft.train(chosen, made, made[:2], tmp_path, tell_sizes=sizes.append)
    checks = [line["valid"][""] for line in curves(tmp_path) if "valid" in line]
    assert checks[-1] < checks[0]
    assert not (result.best / "adapter_config.json").exists()
    assert AutoTokenizer.from_pretrained(result.best)("a b").input_ids == [66, 1, 67]
    before = AutoModelForCausalLM.from_pretrained(tiny)
    after = AutoModelForCausalLM.from_pretrained(result.best)
    assert sizes[0].parameters == sum(p.numel() for p in before.parameters())
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        assert not torch.equal(old, new), name


def test_only_the_upper_layers_are_adapted_when_asked(tiny, tmp_path) -> None:
    chosen = config(tiny, model={"layers": 1}, epochs=0.1)
    result = sft.train(chosen, lessons(4), [], tmp_path)
    found = {name.split(".layers.")[1].split(".")[0] for name in weights(result.best)}
    assert found == {"2"}
    with pytest.raises(BadInput, match="has 3 layers"):
        sft.train(config(tiny, model={"layers": 4}), lessons(4), [], tmp_path / "b")


def test_what_there_is_to_learn_is_counted(tiny, tmp_path) -> None:
    sizes = []
    long = replace(
        lessons(1)[0],
        examples=(*lessons(1)[0].examples, replace(lessons(1)[0].examples[0], prompt="a" * 500)),
    )
    sft.train(
        config(tiny, epochs=0.1, max_tokens=200),
        [long, *lessons(4)[1:]],
        lessons(2),
        tmp_path,
        tell_sizes=sizes.append,
    )
    (size,) = sizes
    assert (size.examples, size.too_long, size.packs, size.valid) == (12, 1, 4, 6)
    assert size.tokens < 0.7 * size.plain
    assert size.targets == sum(len(e.completion) for lesson in lessons(4) for e in lesson.examples)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_tokens": 16}, r"No example fits train\.max_tokens \(16\)"),
        ({"model": {"targets": ("nothing",)}}, r"model\.targets"),
        ({"lr": 1e30, "clip": 1e30, "accumulation": 1}, r"The loss is (nan|inf) after step"),
    ],
)
def test_what_cannot_be_trained_is_refused(tiny, tmp_path, settings, words) -> None:
    with pytest.raises(BadInput, match=words):
        sft.train(config(tiny, **settings), lessons(6), lessons(2), tmp_path)


def test_a_model_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput, match="cannot be loaded"):
        sft.train(config(str(tmp_path / "none")), lessons(2), [], tmp_path / "run")


def test_a_question_is_in_one_part_whatever_else_there_is() -> None:
    learned, kept = sft.split(lessons(400), 0.25)
    assert 60 < len(kept) < 140
    assert len(learned) + len(kept) == 400
    fewer_learned, fewer_kept = sft.split([*lessons(100), *lessons(100)], 0.25)
    names = {lesson.question for lesson in kept}
    assert {lesson.question for lesson in fewer_kept} == {
        lesson.question for lesson in lessons(100) if lesson.question in names
    }
    assert not {x.question for x in fewer_learned} & {x.question for x in fewer_kept}
    assert sft.split(lessons(3), 0.0) == (lessons(3), [])


def test_the_verb_goes_from_a_configuration_to_an_adapter(tiny, tmp_path) -> None:
    from click.testing import CliRunner

    from multihop.cli import cli

    files.write(tmp_path / "lessons.jsonl", lessons(12))
    path = tmp_path / "own.toml"
    path.write_text(
        f'[model]\nbase = "{tiny}"\nr = 4\n[data]\nlessons = "lessons.jsonl"\nvalid = 0.2\n'
        '[train]\nlr = 0.02\nepochs = 1\nthreads = 1\n[output]\nname = "own"\nfolder = "run"\n'
        'licence = "CC0-1.0"\n'
    )
    done = CliRunner().invoke(cli, ["train", "sft", str(path)], standalone_mode=False)
    assert done.exception is None, done.output
    assert done.return_value == 0
    assert "examples in" in done.stderr
    assert "validation loss" in done.stderr
    assert str(tmp_path / "run" / "adapter") in done.stdout
    assert (tmp_path / "run" / "adapter" / "card.json").is_file()
    assert "<svg" in (tmp_path / "run" / "curves.html").read_text()


def test_an_interrupted_verb_says_how_to_go_on_and_goes_on(tiny, tmp_path, monkeypatch) -> None:
    from click.testing import CliRunner

    from multihop.cli import cli

    files.write(tmp_path / "lessons.jsonl", lessons(8))
    path = tmp_path / "own.toml"
    path.write_text(
        f'[model]\nbase = "{tiny}"\nr = 4\n[data]\nlessons = "lessons.jsonl"\nvalid = 0\n'
        "[train]\nepochs = 4\nthreads = 1\n"
    )
    whole = sft.train

    def interrupted(*given, tell, **named):
        def then(progress: sft.Progress) -> None:
            tell(progress)
            if progress.step == 1:
                signal.raise_signal(signal.SIGTERM)

        return whole(*given, tell=then, **named)

    with monkeypatch.context() as patch:
        patch.setattr(sft, "train", interrupted)
        done = CliRunner().invoke(cli, ["train", "sft", str(path)], standalone_mode=False)
    assert done.return_value == 130
    assert "saved. The same command goes on." in done.stderr
    assert done.stdout == ""
    done = CliRunner().invoke(cli, ["train", "sft", str(path)], standalone_mode=False)
    assert done.return_value == 0, done.stderr
    steps = [line["step"] for line in curves(tmp_path / "multihop-adapter")]
    assert steps == [1, 2, 3, 4]


@pytest.mark.slow
def test_two_processes_learn_what_one_does(undisturbed, tiny, tmp_path) -> None:
    files.write(tmp_path / "lessons.jsonl", lessons(12))
    for processes in (1, 2):
        (tmp_path / f"{processes}.toml").write_text(
            f'[model]\nbase = "{tiny}"\nr = 4\n[data]\nlessons = "lessons.jsonl"\nvalid = 0.2\n'
            f"[train]\nlr = 0.02\nthreads = 1\naccumulation = {4 // processes}\n"
            f'[output]\nname = "by{processes}"\n'
        )
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"),
                *(str(processes), "-m", "multihop", "train", "sft"),
                str(tmp_path / f"{processes}.toml"),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("examples in") == 1
    one, two = (curves(tmp_path / name) for name in ("by1", "by2"))
    assert len(one) == len(two) == 8
    for a, b in zip(one, two, strict=True):
        assert a["step"] == b["step"]
        assert a.get("loss", 0) == pytest.approx(b.get("loss", 0), rel=1e-4)
        for key in ("skills", "valid"):
            assert a.get(key, {}) == pytest.approx(b.get(key, {}), rel=1e-4)
    assert one[-1]["tokens"] == two[-1]["tokens"]
    assert (tmp_path / "by2" / "adapter" / "card.json").is_file()


@pytest.mark.parametrize("method", ["lora", "full"])
def test_short_numbers_learn_about_the_same(tiny, tmp_path, method) -> None:
    last = []
    for dtype in ("float32", "bfloat16"):
        chosen = config(tiny, model={"method": method}, lr=0.005, dtype=dtype)
        sft.train(chosen, lessons(6), lessons(2), tmp_path / dtype)
        last.append(curves(tmp_path / dtype)[-1]["valid"][""])
    assert last[1] == pytest.approx(last[0], rel=0.05)
    assert last[1] != last[0]
