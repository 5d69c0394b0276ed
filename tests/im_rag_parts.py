"""A tiny corpus with questions of two hops, and a configuration over it."""

import json
from pathlib import Path

from multihop.retrievers.bm25_index import build_index
from multihop.text import Passage
from multihop.training.config import Model, Train
from multihop.training.im_rag.config import RL, Config, Data, Loop, Output, Reward, Source, Start

FILMS = ("Clay", "Dusk", "Ember", "Fjord", "Gale", "Haze", "Iris", "Jade", "Kiln", "Loam")
PEOPLE = ("Ann", "Bea", "Cal", "Dan", "Eva", "Fay", "Gus", "Hal", "Ida", "Jon")
PLACES = ("Pune", "Oslo", "Lima", "Bern", "Kyiv", "Rome", "Doha", "Baku", "Cork", "Nice")


def corpus() -> list[Passage]:
    films = [
        Passage(f"f{n}", film, f"{film} is a 1931 film directed by {PEOPLE[n]} Rao.")
        for n, film in enumerate(FILMS)
    ]
    people = [
        Passage(f"p{n}", f"{name} Rao", f"{name} Rao was a director, born in {PLACES[n]}.")
        for n, name in enumerate(PEOPLE)
    ]
    return films + people


def records(start: int = 0, end: int = 10) -> list[dict]:
    return [
        {
            "id": f"q{n}",
            "question": f"Where was the director of {film} born?",
            "answers": [PLACES[n]],
            "gold_paragraph_ids": [f"f{n}", f"p{n}"],
            "evidences": [
                [film, "director", f"{PEOPLE[n]} Rao"],
                [f"{PEOPLE[n]} Rao", "place of birth", PLACES[n]],
            ],
        }
        for n, film in enumerate(FILMS)
    ][start:end]


def source(folder: Path, many: int = 10) -> Source:
    """The corpus as an index, and questions."""
    if not (folder / "index").exists():
        build_index(corpus(), folder / "index")
    file = folder / f"train{many}.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records(0, many)))
    return Source(
        name="own", licence="CC0-1.0", questions=(str(file),), index=str(folder / "index")
    )


def config(folder: Path, base: str = "", start: str = "", many: int = 10, **rl) -> Config:
    """Small enough for a model whose tokens are letters."""
    given = {
        "steps": 3,
        "questions": 2,
        "group": 4,
        "window": 512,
        "max_tokens": 1024,
        "lr": 1e-2,
        "warmup": 0,
        "valid_every": 2,
        "save_steps": 1,
        "beta": 0.0,
        "fresh": not start,
        **rl,
    }
    return Config(
        model=Model(base=base, r=4, alpha=8.0),
        loop=Loop(
            k=1, n_candidates=4, max_turns=2, words=10, max_query_tokens=24, max_answer_tokens=6
        ),
        data=Data(sets=(source(folder, many),), valid=0.3),
        start=Start(questioner=start),
        train=Train(epochs=2, accumulation=2, max_tokens=1024, dtype="float32"),
        rl=RL(**given),
        reward=Reward(),
        output=Output(folder=str(folder / "run")),
    )
