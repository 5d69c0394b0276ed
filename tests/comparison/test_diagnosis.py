"""Each wrong answer falls into one class, and where two rules fit the earlier one decides."""

from dataclasses import replace

import pytest

from made_traces import CARMEN, MERIMEE, QUESTION, TOULON, ULM, Written, failed
from multihop.comparison import CLASSES, diagnose
from multihop.text import Passage, Question
from multihop.trace import Search, Titles, Trace


def name(trace: Trace) -> str:
    found = diagnose(trace)
    assert found
    assert found.name in CLASSES
    assert found.why.endswith(".")
    return found.name


def asked(**changes) -> Question:
    return replace(QUESTION, **changes)


# --- What is not sorted ---------------------------------------------------------------------


def test_right_answers_failed_runs_and_questions_without_gold_are_not_sorted() -> None:
    assert diagnose(Written().search(CARMEN).answer("Cannes")) is None
    assert diagnose(Written().search(CARMEN).answer("the cannes.")) is None
    assert diagnose(failed(QUESTION)) is None
    assert diagnose(Written(asked(answers=())).search(CARMEN).answer("Ulm")) is None


# --- A class each ---------------------------------------------------------------------------


def test_a_gold_passage_that_no_search_brought_is_a_hop_miss() -> None:
    found = diagnose(Written().search(CARMEN, ULM).think("It is by Bizet.").answer("Paris"))
    assert found
    assert found.name == "hop miss"
    assert found.missing == ((2, "Prosper Mérimée"),)
    assert found.why == "Never found: Prosper Mérimée (gold passage 2)."


def test_a_strategy_that_searches_nothing_misses_every_hop() -> None:
    found = diagnose(Written(strategy="nor").answer("Paris"))
    assert found
    assert (found.name, found.why) == ("hop miss", "Nothing was searched for.")
    assert [place for place, _ in found.missing] == [1, 2]


def test_a_gold_passage_left_out_at_the_cap_is_crowded_out() -> None:
    run = Written(max_passages=2).search(CARMEN, ULM).search(TOULON, MERIMEE, keep=())
    found = diagnose(run.answer("Paris"))
    assert found
    assert found.name == "crowded out"
    assert found.crowded == ((2, "Prosper Mérimée"),)
    assert found.why == "Prosper Mérimée: came back at rank 2 when 2 passages were collected."


def test_a_gold_passage_that_was_too_long_is_crowded_out() -> None:
    run = Written(longest=5, max_passages=15).search(CARMEN, MERIMEE, keep=[CARMEN])
    found = diagnose(run.answer("Paris"))
    assert found
    assert (found.name, found.why) == (
        "crowded out",
        "Prosper Mérimée: came back at rank 2, longer than 5 words.",
    )


def test_a_gold_passage_that_made_room_for_later_ones_is_crowded_out() -> None:
    run = Written().search(CARMEN, MERIMEE).forget(CARMEN).search(TOULON)
    found = diagnose(run.answer("Paris"))
    assert found
    assert found.name == "crowded out"
    assert found.why == "Carmen: was collected, and made room for later ones."


def test_a_gold_passage_that_the_window_had_no_room_for_is_crowded_out() -> None:
    run = Written().search(CARMEN, MERIMEE)
    found = diagnose(run.answer("Paris", prompt=f"Wikipedia Title: Carmen\n{CARMEN.text}\n\nQ: ?"))
    assert found
    assert found.name == "crowded out"
    assert found.why == "Prosper Mérimée: was collected, but the window had no room for it."


def test_a_gold_passage_cut_before_its_answer_is_crowded_out() -> None:
    start = "Prosper Mérimée was a French writer, born in Paris in 1803."
    prompt = f"Wikipedia Title: Carmen\n{CARMEN.text}\n\nWikipedia Title: Prosper Mérimée\n{start}"
    found = diagnose(Written().search(CARMEN, MERIMEE).answer("Paris", prompt=prompt))
    assert found
    assert found.name == "crowded out"
    assert found.why == "Prosper Mérimée: the prompt's part of it ends before the gold answer."


def test_all_gold_before_the_reader_and_a_wrong_answer_is_a_composition_miss() -> None:
    found = diagnose(Written().search(CARMEN, MERIMEE).think("He is French.").answer("Paris"))
    assert found
    assert found.name == "composition miss"
    assert found.why == "Both gold passages were in front of the reader."


def test_a_chain_that_knew_better_than_its_answer_is_told() -> None:
    run = Written().search(CARMEN, MERIMEE).think("Mérimée died in Cannes.")
    found = diagnose(run.answer("Paris"))
    assert found
    assert found.name == "composition miss"
    assert "a sentence of the chain holds the gold answer" in found.why


def test_a_chain_that_ends_on_the_name_of_its_next_hop_is_a_stop_miss() -> None:
    run = Written().search(CARMEN).think("So the answer is: Prosper Merimee.")
    found = diagnose(run.answer("Prosper Merimee"))
    assert found
    assert found.name == "stop miss"
    assert found.missing == ((2, "Prosper Mérimée"),)
    assert found.why.startswith("The chain ended (answered) on a sentence that names")


def test_a_chain_that_goes_on_long_after_everything_was_there_is_a_stop_miss() -> None:
    run = Written().search(CARMEN, MERIMEE)
    for n in range(3):
        run.think(f"Thought {n}.").search(ULM, query=f"Thought {n}.")
    found = diagnose(run.think("So the answer is: Ulm.").answer("Ulm"))
    assert found
    assert found.name == "stop miss"
    assert found.why == "All gold was there after search 1; 3 more were made."


@pytest.mark.parametrize(
    ("answer", "gold", "why"),
    [
        (
            "He died in the town of Cannes in France",
            "Cannes",
            "The answer holds 'Cannes' and more.",
        ),
        ("Yes, both are writers", "yes", "The answer begins with 'yes'."),
        ("on the 23rd of September, 1870", "September 23, 1870", "The answer holds"),
        ("British Conservative", "British Conservative Party", "The answer is most of"),
    ],
)
def test_a_right_answer_in_the_wrong_form_is_a_format_miss(answer, gold, why) -> None:
    found = diagnose(Written(asked(answers=(gold,))).answer(answer))
    assert found
    assert found.name == "format miss"
    assert found.why.startswith(why)


def test_a_right_sentence_that_states_no_answer_is_a_format_miss() -> None:
    found = diagnose(Written().search(CARMEN).answer("", written="He passed away in Cannes"))
    assert found
    assert (found.name, found.why) == (
        "format miss",
        "The model wrote 'Cannes' and stated no answer.",
    )


@pytest.mark.parametrize(
    ("answer", "gold", "how"),
    [
        ("23 September 1870", "September 23rd, 1870", "another writing"),
        ("twenty-three", "23", "another writing"),
        ("Dvorak", "Dvořák", "another writing"),
        ("Mérimée, Prosper", "Prosper Mérimée", "other order"),
        ("USA", "United States of America", "initials"),
        ("Delmer Daves", "Delmer Lawrence Daves", "a longer or shorter form"),
    ],
)
def test_the_gold_answer_in_other_words_leaves_the_label_in_doubt(answer, gold, how) -> None:
    found = diagnose(Written(asked(answers=("Nothing", gold))).answer(answer))
    assert found
    assert found.name == "label doubt"
    assert how in found.why


def test_gold_that_no_gold_passage_has_beside_an_answer_that_one_has_is_in_doubt() -> None:
    run = Written(asked(answers=("Nice",))).search(CARMEN, MERIMEE)
    found = diagnose(run.answer("Cannes"))
    assert found
    assert (found.name, found.why) == (
        "label doubt",
        "No gold passage holds the gold answer, and 'Prosper Mérimée' holds the one given.",
    )


def test_without_gold_passages_only_the_answer_s_form_can_be_told() -> None:
    bare = asked(gold_ids=(), gold_titles=())
    assert name(Written(bare).search(CARMEN).answer("Paris")) == "cannot tell"
    assert name(Written(bare).search(CARMEN).answer("in Cannes")) == "format miss"


def test_a_run_that_asked_no_model_for_an_answer_cannot_be_told() -> None:
    run = Written(strategy="oner").search(CARMEN, MERIMEE)
    assert name(run.answer("", read=False)) == "cannot tell"


# --- Where two rules fit --------------------------------------------------------------------


def test_another_writing_comes_before_the_form() -> None:
    # Every word is gold: F1 is 1 although EM is 0.
    assert name(Written(asked(answers=("3 May 1870",))).answer("May 3, 1870")) == "label doubt"


def test_the_form_comes_before_missing_passages() -> None:
    assert name(Written().search(ULM).answer("probably in Cannes")) == "format miss"


def test_a_doubtful_label_needs_all_gold_passages() -> None:
    run = Written(asked(answers=("Nice",))).search(MERIMEE)
    assert name(run.answer("Cannes")) == "hop miss"


def test_a_doubtful_label_comes_before_composition() -> None:
    doubtful = Written(asked(answers=("Nice",))).search(CARMEN, MERIMEE)
    assert name(doubtful.answer("Cannes")) == "label doubt"
    unsupported = Written(asked(answers=("Nice",))).search(CARMEN, MERIMEE)
    assert name(unsupported.answer("Lyon")) == "composition miss"


@pytest.mark.parametrize("gold", ["yes", "no", "2", "two"])
def test_yes_no_and_numbers_need_stand_in_no_passage(gold) -> None:
    run = Written(asked(answers=(gold,))).search(CARMEN, MERIMEE)
    assert name(run.answer("Paris")) == "composition miss"


def test_a_missing_passage_comes_before_a_crowded_one_which_is_told_too() -> None:
    run = Written(max_passages=1).search(ULM).search(MERIMEE, keep=())
    found = diagnose(run.answer("Paris"))
    assert found
    assert found.name == "hop miss"
    assert found.missing == ((1, "Carmen"),)
    assert found.crowded == ((2, "Prosper Mérimée"),)
    assert found.why.endswith("1 more came back and did not reach the reader.")


def test_a_name_that_was_searched_for_in_vain_is_a_hop_miss() -> None:
    run = Written().search(CARMEN).think("It was Prosper Mérimée.")
    run.search(ULM, query="It was Prosper Mérimée.").think("So the answer is: Prosper Mérimée.")
    assert name(run.answer("Prosper Mérimée")) == "hop miss"


def test_a_title_of_the_question_is_no_new_lead() -> None:
    run = Written().search(MERIMEE).think("Carmen is the answer.")
    assert name(run.answer("Carmen")) == "hop miss"


def test_one_more_hop_must_have_been_enough_for_a_stop_miss() -> None:
    run = Written().search(ULM).think("It is by Prosper Mérimée.")
    assert name(run.answer("Paris")) == "hop miss"  # Carmen is missing, too


def test_a_short_title_is_not_looked_for_in_sentences() -> None:
    other = replace(MERIMEE, id="it", title="It")
    question = asked(gold_ids=("carmen", "it"), gold_titles=("Carmen", "It"))
    run = Written(question).search(CARMEN).think("It is late.")
    assert name(run.answer("Paris")) == "hop miss"
    assert other.title == "It"


def test_crowding_out_comes_before_a_late_stop() -> None:
    run = Written().search(CARMEN, MERIMEE).forget(CARMEN)
    for n in range(4):
        run.think(f"Thought {n}.").search(ULM, query=f"Thought {n}.")
    assert name(run.answer("Ulm")) == "crowded out"


def test_two_searches_too_many_are_not_yet_late() -> None:
    run = Written().search(CARMEN, MERIMEE)
    for n in range(2):
        run.think(f"Thought {n}.").search(ULM, query=f"Thought {n}.")
    assert name(run.think("Ulm.").answer("Ulm")) == "composition miss"


def test_without_a_chain_there_is_no_stop_to_miss() -> None:
    run = Written(strategy="fixed hops").search(CARMEN, MERIMEE)
    for n in range(4):
        run.search(ULM, query=f"Query {n}")
    assert name(run.answer("Ulm")) == "composition miss"


def test_a_passage_cut_after_its_answer_is_whole_enough() -> None:
    short = MERIMEE.text.removesuffix(" in 1870.")
    prompt = f"Wikipedia Title: Carmen\n{CARMEN.text}\n\nWikipedia Title: Prosper Mérimée\n{short}"
    assert name(Written().search(CARMEN, MERIMEE).answer("Paris", prompt=prompt)) == (
        "composition miss"
    )


# --- What counts as found and as shown ------------------------------------------------------


def test_gold_that_is_named_by_title_only_is_found_by_title() -> None:
    question = asked(gold_ids=(), gold_titles=("Carmen", "prosper mérimée "))
    assert name(Written(question).search(CARMEN).answer("Paris")) == "hop miss"
    assert name(Written(question).search(CARMEN, MERIMEE).answer("Paris")) == "composition miss"


def test_gold_that_is_given_as_text_is_found_by_text() -> None:
    paragraphs = [{"title": p.title, "text": p.text} for p in (CARMEN, MERIMEE)]
    question = asked(gold_ids=(), gold_titles=(), extra={"gold_paragraphs": paragraphs})
    copy = replace(MERIMEE, id="other id")
    assert name(Written(question).search(CARMEN, copy).answer("Paris")) == "composition miss"
    changed = replace(MERIMEE, text="Prosper Mérimée was born in Paris.")
    found = diagnose(Written(question).search(CARMEN, changed).answer("Paris"))
    assert found
    assert found.missing == ((2, "Prosper Mérimée"),)


def test_a_pinned_passage_is_found_without_a_search() -> None:
    question = asked(pinned=CARMEN)
    assert name(Written(question).search(MERIMEE).answer("Paris")) == "composition miss"


def test_a_search_over_titles_brings_no_passage() -> None:
    run = Written().search(CARMEN)
    [search] = [step for step in run.steps if isinstance(step, Search)]
    run.steps.append(Titles(("M",), ("M",), (replace(search, hits=()),)))
    assert name(run.answer("Paris")) == "hop miss"


def test_without_a_reader_the_last_sentence_s_prompt_is_what_was_shown() -> None:
    run = Written().search(CARMEN, MERIMEE).think("So the answer is: Paris.")
    [thought] = [s for s in run.steps if hasattr(s, "forced")]
    prompt = f"Wikipedia Title: Carmen\n{CARMEN.text}"
    assert thought.call
    run.steps[-1] = replace(thought, call=replace(thought.call, prompt=prompt))
    assert name(run.answer("Paris", read=False)) == "crowded out"


def test_a_passage_without_a_title_is_named_by_its_id() -> None:
    question = asked(gold_ids=("carmen", "p17"), gold_titles=())
    found = diagnose(Written(question).search(CARMEN).answer("Paris"))
    assert found
    assert found.missing == ((2, "p17"),)


def test_odd_answers_and_empty_passages_are_sorted_all_the_same() -> None:
    empty = Passage("carmen", "", "")
    for answer in ("", "?", "the", "yes", "\ud800", "9" * 5000, "a" * 10_000):
        for golds in (("",), ("the",), ("yes",), ("\ud800",), ("9" * 5000,)):
            trace = Written(asked(answers=golds)).search(empty, MERIMEE).answer(answer)
            found = diagnose(trace)
            assert found is None or found.name in CLASSES
