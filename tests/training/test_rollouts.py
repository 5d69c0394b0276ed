"""Lessons: the loop run with the chain that it should write."""

import pytest

from multihop.prompts.layout import ANSWER
from multihop.strategies.rules import TRAINED
from multihop.testing import TitleRetriever
from multihop.text import Passage, Question
from multihop.training.chains import Chain, Link, chain
from multihop.training.examples import Example, Lesson
from multihop.training.rollouts import Contexts, Teacher

FERRY = Passage("f", "The Ferry", "The Ferry is a 1931 film directed by Ada Rao.")
RAO = Passage("r", "Ada Rao", "Ada Rao (born 3 May 1901) was an Indian director, born in Pune.")
LIND = Passage("l", "Bo Lind", "Bo Lind (1 June 1899 – 1960) was a Swedish director.")
CLAY = Passage("c", "King of Clay", "King of Clay is a 1950 film directed by Bo Lind.")
CORPUS = [FERRY, RAO, LIND, CLAY]
QUESTION = Question(
    "Where was the director of The Ferry born?",
    "q1",
    ("Pune",),
    gold_ids=("f", "r"),
    extra={
        "evidences": [["The Ferry", "director", "Ada Rao"], ["Ada Rao", "place of birth", "Pune"]]
    },
)
GOLD = [FERRY, RAO]


def quiet(**changes: object) -> Contexts:
    """Contexts with nothing beside the question itself."""
    return Contexts(**{"mixed": 0, "facts": 0, "comparisons": 0, "closed": 0.0, **changes})  # type: ignore[arg-type]


async def lessons(
    contexts: Contexts, corpus: list[Passage] = CORPUS, links: Chain | None = None, **rest: object
) -> list[Lesson]:
    made = links or chain(QUESTION, GOLD, 70)
    assert made is not None
    teacher = Teacher(TitleRetriever(*corpus), TRAINED, contexts, **rest)  # type: ignore[arg-type]
    return [lesson async for lesson in teacher.lessons(QUESTION, made, GOLD)]


def written(examples: tuple[Example, ...]) -> list[tuple[str, str]]:
    """Chain so far and what follows, of each example."""
    return [(e.prompt.rpartition("\nA:")[2].strip(), e.completion) for e in examples]


async def test_the_second_hop_is_not_told_before_its_passage_is_found() -> None:
    [lesson] = await lessons(quiet(k=(2,)))
    first, second, *_, whole, bare = lesson.examples
    known = " The Ferry was directed by Ada Rao."
    assert first.completion == f"{known} The place of birth of Ada Rao is needed.\n"
    assert RAO.text not in first.prompt
    assert RAO.text in second.prompt
    assert second.prompt.endswith("A: The Ferry was directed by Ada Rao.")
    assert second.completion == f" Ada Rao was born in Pune. {ANSWER} Pune.\n"
    assert whole.completion == known + second.completion
    assert bare.completion == " Pune\n"
    assert TRAINED.read_instruction in bare.prompt


async def test_contexts_only_grow_so_that_what_they_share_is_evaluated_once() -> None:
    [lesson] = await lessons(quiet(k=(1,)))
    before = ""
    for example in lesson.examples[:3]:
        context = example.prompt.partition("\n\nQ:")[0]
        assert context.startswith(before)
        before = context


async def test_what_is_not_found_is_asked_for_and_not_made_up() -> None:
    [lesson] = await lessons(quiet(k=(1,), lost=0.0), corpus=[FERRY, CLAY])
    assert (
        "The Ferry was directed by Ada Rao.",
        " The place of birth of Ada Rao is needed.\n",
    ) in (written(lesson.examples))
    asked = next(e for e in lesson.examples if e.skill == "query")
    assert RAO.text not in asked.prompt
    after = lesson.examples[lesson.examples.index(asked) + 1]
    assert RAO.text in after.prompt, "a passage that was looked for is put in"


async def test_what_stays_missing_is_answered_all_the_same() -> None:
    [lesson] = await lessons(quiet(k=(1,), lost=1.0), corpus=[FERRY, CLAY])
    last = lesson.examples[-1]
    assert last.completion == f" {ANSWER} Pune.\n"
    assert RAO.text not in last.prompt
    assert last.prompt.endswith("The place of birth of Ada Rao is needed.")


async def test_a_link_that_cannot_be_asked_for_has_its_passage_put_in() -> None:
    links = Chain((Link("Ada Rao made The Ferry.", "f"), Link("She is from Pune.", "r")), "Pune")
    [lesson] = await lessons(quiet(k=(1,)), corpus=[CLAY], links=links)
    assert {e.skill for e in lesson.examples} == {"next", "read"}
    assert all(FERRY.text in e.prompt for e in lesson.examples)


async def test_a_line_end_is_learned_after_answers_and_needs_alone() -> None:
    for number in range(20):
        for lesson in await lessons(Contexts(seed=number, mixed=2, missing=0.5, closed=0.5)):
            for example in lesson.examples:
                ended = example.completion.endswith("\n")
                fit_to_end = example.completion.rstrip().endswith(" is needed.")
                fit_to_end |= ANSWER in example.completion or example.skill == "read"
                assert ended == fit_to_end, example.completion


async def test_a_fact_whose_sequel_cannot_be_asked_for_is_left_open() -> None:
    links = Chain((Link("Ada Rao made The Ferry.", "f"), Link("She is from Pune.", "r")), "Pune")
    [lesson] = await lessons(quiet(k=(1,)), corpus=[FERRY, CLAY], links=links)
    assert lesson.examples[0].completion == " Ada Rao made The Ferry."


async def test_mixed_contexts_hold_the_gold_passages_or_end_where_they_do() -> None:
    for number in range(20):
        [lesson] = await lessons(quiet(loops=0, mixed=1, missing=0.5, seed=number))
        for example in lesson.examples:
            answered = "Pune" in example.completion
            assert (RAO.text in example.prompt) == answered


async def test_a_question_draws_the_same_whatever_came_before_it() -> None:
    contexts = Contexts(seed=3)
    assert await lessons(contexts) == await lessons(contexts)
    assert await lessons(contexts) != await lessons(Contexts(seed=4))


async def test_facts_are_asked_of_passages_but_never_of_held_out_ones() -> None:
    contexts = quiet(k=(3,), facts=5, comparisons=3)
    asked = [e for [le] in [await lessons(contexts)] for e in le.examples if e.skill == "fact"]
    assert asked
    assert all(e.weight == contexts.weight for e in asked)
    never = frozenset(p.id for p in CORPUS)
    [lesson] = await lessons(contexts, never=never)
    assert not [e for e in lesson.examples if e.skill == "fact"]


async def test_a_death_that_no_passage_tells_of_is_looked_for() -> None:
    living = Passage("z", "Director", "Director (born 1990) is a British swimmer.")
    made = [
        example
        for seed in range(30)
        for lesson in await lessons(quiet(k=(4,), facts=9, seed=seed), [living, FERRY, RAO])
        for example in lesson.examples
        if example.prompt.endswith("Q: When did Director die?\nA:")
    ]
    assert made
    assert {e.completion for e in made} == {" The date of death of Director is needed.\n"}
    assert {e.skill for e in made} == {"query"}


async def test_questions_without_passages_are_answered_at_once() -> None:
    [lesson] = await lessons(quiet(closed=1.0))
    last = lesson.examples[-1]
    assert last.prompt == f"Q: {QUESTION.text}\nA:"
    assert last.completion == f" {ANSWER} Pune.\n"


def test_drills_hold_the_facts_and_ask_for_the_end_alone() -> None:
    teacher = Teacher(TitleRetriever(*CORPUS), TRAINED, Contexts())
    made = [e for lesson in teacher.drills(CORPUS, 12) for e in lesson.examples]
    assert made
    for example in made:
        assert example.completion.startswith(" Thus, ")
        assert ANSWER in example.completion
        assert "Wikipedia Title" not in example.prompt
        answer = example.completion.partition(f"{ANSWER} ")[2].rstrip(".\n")
        assert answer in example.prompt or answer in ("yes", "no")


@pytest.mark.parametrize("number", [0, 3, 25])
def test_drills_are_never_more_than_asked_for(number: int) -> None:
    teacher = Teacher(TitleRetriever(*CORPUS), TRAINED, Contexts())
    made = [e for lesson in teacher.drills(CORPUS, number) for e in lesson.examples]
    assert len(made) <= number
    assert not [e for le in Teacher(TitleRetriever(), TRAINED).drills([], 5) for e in le.examples]
