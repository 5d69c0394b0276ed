"""Prompts and answers, row by row as the released code wrote and read them."""

import json
from dataclasses import replace

import pytest

from conftest import rows, shared
from golden import counter
from multihop.errors import BadInput
from multihop.prompts import answers, layout
from multihop.prompts.demonstrations import BETWEEN, drop_to_fit, parse, read, select, tidy
from multihop.prompts.fit import ALONE, TOO_LONG, fit
from multihop.prompts.sentences import spacy
from multihop.strategies.rules import preset
from multihop.strategies.writing import Demonstrations, Writer
from multihop.testing import ScriptedLM
from multihop.text import Passage, Question


async def test_demonstration_files_are_read_as_the_release_reads_them():
    failed = []
    for row in rows("golden/read_prompt.jsonl"):
        args = row["input"]["args"]
        chosen, warnings = parse(row["input"]["file_content"]), ()
        if "filter_by_key_values" in args:
            [(key, ids)] = args["filter_by_key_values"].items()
            chosen, warnings = select(chosen, ids, key=key, in_order="order_by_key" in args)
        before = chosen = tidy(chosen)
        if "model_length_limit" in args:
            chosen = await drop_to_fit(
                chosen,
                limit=args["model_length_limit"],
                generation=args["estimated_generation_length"],
                count=counter(row["input"]["tokenizer"]),
                scale=args.get("test_to_train_length_scale", 1),
                longest_first=args.get("removal_method") == "longest_first",
            )
        # One warning tells that some were dropped, another that none is left.
        dropped = (len(before) > len(chosen)) + (not chosen)
        if BETWEEN.join(d.text for d in chosen).strip() != row["expected"]["prompt"]:
            failed.append(row["id"])
        if len(warnings) + dropped != len(row["expected"]["warnings"]):
            failed.append(f"{row['id']}: warnings")
    assert not failed


async def test_prompts_are_fitted_as_the_release_fits_them():
    failed = []
    known = {ALONE: "Found only one", TOO_LONG: "Not enough space"}
    for row in rows("golden/fit_prompt.jsonl"):
        given, expected = row["input"], row["expected"]
        fitted = await fit(
            given["prompt"],
            limit=given["model_length_limit"],
            generation=given["estimated_generation_length"],
            count=counter(given["tokenizer"]),
            drop=given["remove_method"],
        )
        same_warnings = len(fitted.warnings) == len(expected["warnings"]) and all(
            known[ours] in theirs
            for ours, theirs in zip(fitted.warnings, expected["warnings"], strict=True)
        )
        if fitted.text != expected["prompt"] or not same_warnings:
            failed.append(row["id"])
    assert not failed


PINS = {None: "stay", "no_op": "stay", "top": "first", "bottom": "last"}


async def written(row) -> str:
    """The prompt that our writer sends for a recorded stage."""
    given = row["input"]
    chosen, _ = select(parse(given["demo_file"]), given["demo_qids"])
    shots = tidy(chosen)
    rules = replace(
        preset("official", "flan" if given["model"] == "flan_t5" else "codex"),
        limit=given["model_tokens_limit"],
        static_limit=None,
        pin=PINS[given["pin_position"]],
    )
    lm = ScriptedLM(respond=lambda request: "no")
    kinds = Demonstrations(
        cot=shots, direct=shots, cot_alone=shots, direct_alone=shots, titles=shots
    )
    stage = given["stage"]
    reader = "direct" if stage.endswith("direct") else "cot"
    writer = Writer(lm, rules, kinds, reader=reader, count=counter(given["tokenizer"]))
    pinned = given["pinned"] and Passage("pinned", *given["pinned"])
    question = Question(given["question"], pinned=pinned or None)
    pairs = zip(given["titles"], given["paras"], strict=True)
    passages = [Passage(f"{n}", title, text) for n, (title, text) in enumerate(pairs)]
    if stage == "title_gen":
        question = replace(
            question, pinned=passages[0] if passages and not pinned else question.pinned
        )
        await writer.titles(question, 3)
    elif stage == "cot_gen":
        await writer.next_sentence(question, passages, given["generated_sentences"] or [])
    elif stage.startswith("nor"):
        await writer.read(question, (), "answered")
    else:
        await writer.read(question, passages, "answered")
    [request] = lm.requests
    parameters = row["expected"]["generation_parameters"]
    assert request.max_tokens == parameters.get("max_tokens", parameters.get("max_length"))
    assert request.temperature == 0
    return request.prompt.text


@pytest.mark.spacy
async def test_whole_prompts_equal_the_recorded_ones_to_the_byte():
    failed = {}
    for row in rows("golden/full_prompt.jsonl"):
        prompt = await written(row)
        if prompt != row["expected"]["prompt"]:
            failed[row["id"]] = (prompt[-300:], row["expected"]["prompt"][-300:])
    assert not failed


def test_paragraphs_are_shown_as_the_release_shows_them():
    for row in rows("golden/para_text.jsonl"):
        given = row["input"]
        shown = layout.paragraph(given["title"], given["paragraph_text"], given["max_num_words"])
        assert shown == row["expected"]["text"], row["id"]


def test_the_pinned_passage_stands_where_the_release_puts_it():
    for row in rows("golden/pinned.jsonl"):
        given, expected = row["input"], row["expected"]
        pairs = zip(given["titles"], given["paras"], strict=True)
        passages = [Passage(f"{n}", title, text) for n, (title, text) in enumerate(pairs)]
        pinned = None
        if given["pinned_title"] is not None:
            pinned = Passage("pinned", given["pinned_title"], given["pinned_para"])
        where = given["pin_position"]
        if ("error" in expected and where not in PINS) or (where is None and pinned):
            continue  # no such place can be named in ours: `Pin` is a closed set
        if "error" in expected:
            with pytest.raises(BadInput):
                layout.pin(passages, pinned, PINS[where])
            continue
        shown = layout.pin(passages, pinned, PINS[where])
        assert [p.title for p in shown] == expected["titles"], row["id"]
        assert [p.text for p in shown] == expected["paras"], row["id"]


def test_readers_answers_are_stored_extracted_and_scored_as_by_the_release():
    failed = []
    for row in rows("golden/reader_answer.jsonl"):
        stored = answers.official_store(row["input"]["lm_output"])
        steps = [stored]
        if row["input"]["reader"] == "cot":
            steps.append(answers.official_extract(stored))
        prediction = answers.official_prediction(steps[-1])
        got = {
            "step_answers": steps,
            "prediction": prediction,
            "evaluated_answers": answers.official_evaluated(prediction),
        }
        if got != row["expected"]:
            failed.append(row["id"])
    assert not failed


def test_answers_are_extracted_as_by_the_release():
    for row in rows("golden/answer_extractor.jsonl"):
        given = row["input"]
        answer = answers.official_extract(
            given["stored_answer"],
            match_all=given["match_all_on_failure"],
            drop_full_stop=given["remove_last_fullstop"],
        )
        assert answer == row["expected"]["answer"], row["id"]


def test_predictions_are_read_for_scoring_as_by_the_release():
    for row in rows("golden/eval_answer_extractor.jsonl"):
        answer = answers.official_statement(row["input"]["prediction"])
        assert answer == row["expected"]["answer"], row["id"]


@pytest.mark.spacy
def test_sentences_are_split_as_by_the_release():
    failed = []
    for row in rows("golden/sentence_split.jsonl"):
        written = row["input"]["generation"].strip()
        sentences = spacy(written) if written else []
        first = sentences[0] if sentences else None
        if first != row["expected"]["first_sentence"]:
            failed.append(row["id"])
        if sentences != row["expected"]["all_sentences"]:
            failed.append(f"{row['id']}: all")
    assert not failed


async def test_released_demonstrations_are_dropped_as_often_as_by_the_release():
    counts = json.loads(shared("golden/codex_demo_counts.json").read_text())
    sets = json.loads(shared("golden/prompt_sets.json").read_text())
    checked = 0
    for path in sorted(shared("data/raw/ircot_prompts").glob("*.txt")):
        dataset = path.name.split("_gold_with")[0]
        for number in ("1", "2", "3"):
            kind = path.stem.removeprefix(f"{dataset}_")
            expected = counts[f"{dataset}|{kind}|set {number}"]["kept"]
            chosen, _ = select(read(path), sets[dataset][number])
            kept = await drop_to_fit(
                tidy(chosen), limit=8000, generation=300, count=counter("gpt2")
            )
            assert len(kept) == expected, (path.name, number)
            checked += 1
    assert checked == 12
