"""Formats without a published slice at hand: files of the same shape, made here."""

import bz2
import io
import json
import random
import tarfile

import pytest

from multihop import names
from multihop.errors import BadInput
from multihop.text import Passage


def questions(name):
    return list(names.open_questions(name))


# --- HotpotQA -------------------------------------------------------------------------------


def hotpot(**more):
    record = {
        "_id": "h1",
        "question": "Where was the builder of Brask Mill born?",
        "answer": "Lund",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Jon Brask", 1], ["Brask Mill", 0], ["Brask Mill", 1]],
        "context": [
            ["Ode ", ["A river.", " It is long. "]],
            ["Brask Mill", ["The mill is old.", " Jon Brask built it."]],
            ["Jon Brask", ["A builder.", " He was born in Lund."]],
        ],
    }
    return {k: v for k, v in (record | more).items() if v is not ...}


def written(path, records):
    path.write_text(json.dumps(records), "utf-8")
    return path


def test_hotpotqa_joins_sentences_by_nothing_and_marks_whole_paragraphs(tmp_path):
    path = written(tmp_path / "dev.json", [hotpot()])
    [instance] = names.open_dataset("hotpotqa").instances(path)
    assert [(c.title, c.text, c.supporting) for c in instance.contexts] == [
        ("Ode", "A river. It is long.", False),
        ("Brask Mill", "The mill is old. Jon Brask built it.", True),
        ("Jon Brask", "A builder. He was born in Lund.", True),
    ]
    [question] = questions(f"hotpotqa:{path}")
    assert question.gold_titles == ("Brask Mill", "Jon Brask")
    assert question.extra["gold_paragraphs"] == [
        {"title": "Brask Mill", "text": "The mill is old. Jon Brask built it."},
        {"title": "Jon Brask", "text": "A builder. He was born in Lund."},
    ]
    assert question.extra["supporting_facts"][0] == ["Jon Brask", 1]
    assert (question.kind, question.extra["level"]) == ("bridge", "hard")


def test_hotpotqa_takes_a_text_under_two_titles_once_under_the_last(tmp_path):
    twice = [["A", ["Same."]], ["Brask Mill", ["Mill."]], ["B", ["Same."]]]
    facts = [["A", 0], ["Brask Mill", 0]]
    path = written(tmp_path / "dev.json", [hotpot(context=twice, supporting_facts=facts)])
    [instance] = names.open_dataset("hotpotqa").instances(path)
    assert [(c.title, c.supporting) for c in instance.contexts] == [
        ("B", True),
        ("Brask Mill", True),
    ]


def test_gold_that_the_fullwiki_contexts_lack_is_known_by_title_only(tmp_path):
    path = written(tmp_path / "dev.json", [hotpot(context=hotpot()["context"][:2])])
    [question] = questions(f"hotpotqa:{path}")
    assert question.gold_titles == ("Jon Brask", "Brask Mill")
    assert "gold_paragraphs" not in question.extra
    assert question.gold_ids == ()


def test_a_question_without_labels_has_neither_answer_nor_gold(tmp_path):
    bare = hotpot(answer=..., supporting_facts=..., type=..., level=...)
    [question] = questions(f"hotpotqa:{written(tmp_path / 'test.json', [bare])}")
    assert (question.answers, question.gold_titles, question.kind) == ((), (), "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"context": {"title": ["A"]}}, "'context' must be a list, found dict"),
        ({"context": [["A", "text"]]}, r"'context' must hold \[title, \[sentence, ...\]\], found"),
        ({"supporting_facts": [["A", "0"]]}, r"'supporting_facts' must hold \[title, number\]"),
        ({"answer": ["Lund"]}, "'answer' must be a string, found list"),
        ({"supporting_facts": ...}, "no 'supporting_facts'"),
    ],
)
def test_a_field_of_another_shape_is_told(tmp_path, change, said):
    path = written(tmp_path / "dev.json", [hotpot(), hotpot(_id="h2", **change)])
    with pytest.raises(BadInput, match=rf"dev\.json: record 2: {said}.*multihop data get hotpotqa"):
        questions(f"hotpotqa:{path}")


def test_an_id_that_comes_twice_is_refused(tmp_path):
    path = written(tmp_path / "dev.json", [hotpot(), hotpot()])
    with pytest.raises(BadInput, match=r"dev\.json: two questions have the id 'h1'"):
        questions(f"hotpotqa:{path}")


PAGES = [
    {"id": "12", "title": "Ode", "text": ["A river.", " It is long. "], "url": "u"},
    {"id": "25", "title": "Brask Mill", "text": ["The mill is old."], "url": "u"},
    {"id": 39, "title": "Ode", "text": [], "url": "u"},
]


def dump(path, *files):
    """A tar.bz2 of folders of bz2 files, as the abstracts are published."""
    with tarfile.open(path, "w:bz2") as archive:
        folder = tarfile.TarInfo("dump/AA")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for number, pages in enumerate(files):
            lines = "".join(json.dumps(page) + "\n" for page in pages)
            content = bz2.compress(lines.encode())
            member = tarfile.TarInfo(f"dump/AA/wiki_{number:02}.bz2")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def abstracts(path):
    return names.open_dataset("hotpotqa").corpus.read([path])


def test_the_abstracts_are_read_out_of_their_archive(tmp_path):
    path = dump(tmp_path / "abstracts.tar.bz2", PAGES[:2], PAGES[2:])
    assert list(abstracts(path)) == [
        Passage("12", "Ode", "A river. It is long."),
        Passage("25", "Brask Mill", "The mill is old."),
        Passage("39", "Ode", ""),
    ]


def test_a_damaged_dump_is_refused_with_its_name(tmp_path):
    path = dump(tmp_path / "abstracts.tar.bz2", [dict(PAGES[0], id=str(n)) for n in range(2000)])
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no archive", whole[:-20]):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=r"abstracts\.tar\.bz2: .*multihop data get hotpotqa"):
            list(abstracts(path))


@pytest.mark.parametrize(("name", "found"), [("text", "no 'text'"), ("id", "no 'id'")])
def test_a_changed_field_of_the_dump_is_told_with_its_place(tmp_path, name, found):
    changed = {k + "_" * (k == name): v for k, v in PAGES[1].items()}
    path = dump(tmp_path / "abstracts.tar.bz2", [PAGES[0], changed])
    with pytest.raises(BadInput, match=rf"abstracts\.tar\.bz2: dump/AA/wiki_00\.bz2:2: {found}"):
        list(abstracts(path))


def test_an_archive_of_something_else_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.bz2", "w:bz2") as archive:
        archive.addfile(tarfile.TarInfo("readme.txt"))
    with pytest.raises(BadInput, match=r"no \.bz2 files of pages in it"):
        list(abstracts(tmp_path / "a.tar.bz2"))


# --- 2WikiMultihopQA ------------------------------------------------------------------------


def test_answers_of_2wiki_have_the_aliases_of_the_file_beside(tmp_path):
    record = hotpot(evidences=[["Brask Mill", "builder", "Jon Brask"]], answer_id="Q7", level=...)
    path = written(tmp_path / "dev.json", [record])
    assert questions(f"2wikimultihopqa:{path}")[0].answers == ("Lund",)
    aliases = [
        {"Q_id": "Q1", "aliases": ["no"], "demonyms": []},
        {"Q_id": "Q7", "aliases": ["Londinum", "Lund"], "demonyms": ["Lundian"]},
    ]
    (tmp_path / "id_aliases.json").write_text("".join(json.dumps(a) + "\n" for a in aliases))
    [question] = questions(f"2wikimultihopqa:{path}")
    assert question.answers == ("Lund", "Londinum", "Lundian")
    assert question.extra["evidences"] == [["Brask Mill", "builder", "Jon Brask"]]


def test_2wiki_joins_sentences_by_a_blank_and_names_paragraphs(tmp_path):
    contexts = [["Mill ", ["Old.", "Big. "]], ["Ode", ["A river."]]]
    record = hotpot(evidences=[], context=contexts, supporting_facts=[["Mill ", 0]], level=...)
    path = written(tmp_path / "dev.json", [record])
    dataset = names.open_dataset("2wikimultihopqa")
    [question] = dataset.read(path)
    assert question.extra["gold_paragraphs"] == [{"title": "Mill", "text": "Old. Big."}]
    passages = list(dataset.corpus.read([path, path]))
    assert [(p.title, p.text) for p in passages] == [("Mill ", "Old. Big. "), ("Ode", "A river.")]
    assert question.gold_ids == (passages[0].id,)


def test_an_unlabelled_2wiki_record_may_have_empty_labels(tmp_path):
    bare = hotpot(answer="", supporting_facts=[], evidences=[], level=...)
    [question] = questions(f"2wikimultihopqa:{written(tmp_path / 'test.json', [bare])}")
    assert (question.answers, question.gold_ids, question.gold_titles) == ((), (), ())


# --- MuSiQue --------------------------------------------------------------------------------


def musique(**more):
    paragraphs = [
        {"idx": 0, "title": "Jon Brask", "paragraph_text": "Born in Lund.", "is_supporting": True},
        {"idx": 1, "title": "Ode", "paragraph_text": "A river.", "is_supporting": False},
        {"idx": 2, "title": "Mill", "paragraph_text": "Built by Brask.", "is_supporting": True},
    ]
    steps = [
        {"id": 1, "question": "Mill >> builder", "answer": "Brask", "paragraph_support_idx": 2},
        {"id": 2, "question": "#1 >> born", "answer": "Lund", "paragraph_support_idx": 0},
    ]
    record = {
        "id": "2hop__1_2",
        "question": "Where was the builder of the mill born?",
        "paragraphs": paragraphs,
        "question_decomposition": steps,
        "answer": "Lund",
        "answer_aliases": ["Lund, Sweden"],
        "answerable": True,
    }
    return {k: v for k, v in (record | more).items() if v is not ...}


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def test_musique_full_tells_an_unanswerable_question_from_its_twin(tmp_path):
    lacking = [p | {"is_supporting": p["idx"] == 0} for p in musique()["paragraphs"][:2]]
    twin = musique(paragraphs=lacking, answerable=False)
    asked = questions(f"musique:{lines(tmp_path / 'full.jsonl', musique(), twin)}")
    assert [q.id for q in asked] == ["2hop__1_2", "2hop__1_2/unanswerable"]
    assert [q.answers for q in asked] == [("Lund", "Lund, Sweden"), ()]
    assert [len(q.gold_ids) for q in asked] == [2, 0]
    assert [q.extra["answerable"] for q in asked] == [True, False]
    assert asked[1].extra["twin_answer"] == "Lund"
    assert [q.kind for q in asked] == ["2hop", "2hop"]


def test_musique_names_gold_in_hop_order_too(tmp_path):
    [question] = questions(f"musique:{lines(tmp_path / 'dev.jsonl', musique())}")
    assert question.gold_titles == ("Jon Brask", "Mill")
    assert question.extra["hop_ids"] == [*reversed(question.gold_ids)]


def test_musique_without_labels_is_read(tmp_path):
    paragraphs = [
        {k: v for k, v in p.items() if k != "is_supporting"} for p in musique()["paragraphs"]
    ]
    bare = musique(
        answer=...,
        answer_aliases=...,
        answerable=...,
        question_decomposition=...,
        paragraphs=paragraphs,
    )
    [question] = questions(f"musique:{lines(tmp_path / 'test.jsonl', bare)}")
    assert (question.id, question.answers, question.gold_ids) == ("2hop__1_2", (), ())


def test_a_paragraph_of_musique_without_its_mark_is_told(tmp_path):
    broken = [{"idx": 0, "title": "Mill", "paragraph_text": "Old."}]
    path = lines(tmp_path / "dev.jsonl", musique(), musique(id="x", paragraphs=broken))
    with pytest.raises(BadInput, match=r"dev\.jsonl:2: in 'paragraphs': no 'is_supporting'"):
        questions(f"musique:{path}")


# --- IIRC -----------------------------------------------------------------------------------

LONG = "The mill was built by Jon Brask in the year 1786 on a small river"
OTHER = "Jon Brask was a builder who was born in Lund and lived there until 1801"


def asked(qid, answer, *contexts):
    found = [{"passage": page, "text": text, "indices": [0, 1]} for page, text in contexts]
    return {
        "qid": qid,
        "question": "Where was the builder born?",
        "answer": answer,
        "question_links": ["Brask Mill"],
        "context": found,
    }


SPAN = {"type": "span", "answer_spans": [{"text": " Lund", "passage": "x", "indices": [0, 4]}]}
IIRC = [
    {
        "pid": "p_0",
        "title": "Ode",
        "text": " The Ode is a river with a mill.\n",
        "links": [{"target": "Brask Mill", "indices": [20, 24]}],
        "questions": [
            asked("q_0", SPAN, ("main", "a mill"), ("Brask Mill", "built by Jon Brask")),
            asked("q_1", {"type": "value", "answer_value": "15 ", "answer_unit": "years"}),
            asked("q_2", {"type": "binary", "answer_value": "yes"}, ("Nowhere", "gone")),
            asked("q_3", {"type": "none"}),
        ],
    },
    {
        "pid": "p_1",
        "title": "Lund",
        "text": "A town.",
        "links": [],
        "questions": [
            asked(
                "q_4",
                {"type": "span", "answer_spans": [{"text": "Venn"}, {"text": "Brask"}]},
                ("Jon Brask", "born in Lund"),
                ("Jon Brask", "lived there"),
                ("Lund", "a town"),
            )
        ],
    },
]
ARTICLES = {
    "brask mill": f"<b>Short line</b>\n{OTHER} &amp; so on\n\n<a href='x'>{LONG}</a>.\n",
    "unwanted": f"{LONG}",
    "Jon Brask": f"{OTHER}\n{LONG}\n",
}


def iirc(tmp_path, records=IIRC, articles=ARTICLES):
    path = written(tmp_path / "dev.json", records)
    if articles is not None:
        written(tmp_path / "context_articles.json", articles)
    return path


def test_all_types_of_iirc_answers_are_read(tmp_path):
    found = questions(f"iirc:{iirc(tmp_path)}")
    assert [q.id for q in found] == ["q_0", "q_1", "q_2", "q_3", "q_4"]
    assert [q.answers for q in found] == [("Lund",), ("15",), ("yes",), (), ("Venn, Brask",)]
    assert [q.kind for q in found] == ["span", "value", "binary", "none", "span"]
    assert found[1].extra["answer_unit"] == "years"
    assert found[3].extra["answerable"] is False
    assert found[4].extra["answer_parts"] == ["Venn", "Brask"]
    assert found[0].pinned == Passage("q_0/main", "Ode", "The Ode is a river with a mill.")
    assert [q.extra["valid_titles"] for q in found[:1]] == [["Brask Mill"]]


def test_gold_paragraphs_of_iirc_are_those_that_hold_the_snippets(tmp_path):
    found = questions(f"iirc:{iirc(tmp_path)}")
    assert [q.extra["gold_paragraphs"] for q in found] == [
        [{"title": "Brask Mill", "text": f"{LONG}."}],
        [],
        [{"title": "Nowhere", "text": "gone"}],  # its page is missing: the snippet stands
        [],
        [{"title": "Jon Brask", "text": OTHER}],  # not Lund: that is the main passage's title
    ]
    assert found[4].gold_titles == ("Jon Brask",)


def test_without_the_articles_iirc_has_titles_and_snippets_only(tmp_path):
    found = questions(f"iirc:{iirc(tmp_path, articles=None)}")
    assert [q.gold_titles for q in found] == [("Brask Mill",), (), ("Nowhere",), (), ("Jon Brask",)]
    assert "gold_paragraphs" not in found[0].extra
    assert found[0].extra["snippets"] == [{"title": "Brask Mill", "text": "built by Jon Brask"}]


def test_articles_that_change_are_read_anew(tmp_path):
    asked_ = names.open_questions(f"iirc:{iirc(tmp_path)}")
    list(asked_)
    written(tmp_path / "context_articles.json", {"brask mill": f"{LONG} and it still turns"})
    [gold] = next(iter(asked_)).extra["gold_paragraphs"]
    assert gold["text"] == f"{LONG} and it still turns"


def test_the_corpus_of_iirc_is_the_long_lines_of_its_pages(tmp_path):
    iirc(tmp_path)
    passages = list(names.open_dataset("iirc").corpus.read([tmp_path / "context_articles.json"]))
    assert {(p.title, p.metadata["paragraph_index"], p.text) for p in passages} == {
        ("brask mill", 0, f"{OTHER} & so on"),
        ("brask mill", 1, f"{LONG}."),
        ("unwanted", 0, LONG),
        ("Jon Brask", 0, OTHER),
        ("Jon Brask", 1, LONG),
    }
    assert {p.id for p in passages if p.metadata["is_abstract"]} == {
        "brask mill#0",
        "unwanted#0",
        "Jon Brask#0",
    }


def test_paragraphs_of_iirc_are_shuffled_page_by_page_from_one_seed(tmp_path):
    pages = {f"page {n}": "\n".join(f"{LONG}, {n}.{at}" for at in range(6)) for n in range(3)}
    passages = names.open_dataset("iirc").corpus.read([written(tmp_path / "a.json", pages)])
    shuffler, expected = random.Random(13370), []
    for title in pages:
        order = [*range(6)]
        shuffler.shuffle(order)
        expected += [f"{title}#{at}" for at in order]
    assert [p.id for p in passages] == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"questions": ...}, "no 'questions'"),
        ({"text": 3}, "'text' must be a string"),
        ({"links": [{"to": "x"}]}, "in 'links': no 'target'"),
        ({"questions": [{"qid": "q", "question": "Who?", "answer": SPAN}]}, "question 1: no 'con"),
        ({"questions": [asked("q", {"type": "list"})]}, "question 1: in 'answer': unknown type 'l"),
        ({"questions": [asked("q", {"type": "span"})]}, "question 1: in 'answer': no 'answer_sp"),
    ],
)
def test_a_changed_iirc_record_is_told_with_its_place(tmp_path, change, said):
    changed = {k: v for k, v in (IIRC[1] | change).items() if v is not ...}
    path = iirc(tmp_path, [IIRC[0], changed], None)
    with pytest.raises(BadInput, match=rf"dev\.json: record 2: {said}.*multihop data get iirc"):
        questions(f"iirc:{path}")


def test_damaged_articles_are_told(tmp_path):
    path = iirc(tmp_path)
    (tmp_path / "context_articles.json").write_text('{"brask mill": "<p>')
    with pytest.raises(BadInput, match=r"context_articles\.json: entry 1: the file is cut short"):
        questions(f"iirc:{path}")


# --- StrategyQA, Bamboogle, FanOutQA --------------------------------------------------------


def test_strategyqa_unites_the_paragraphs_of_its_annotators(tmp_path):
    evidence = [
        [[["Mill-1", "Ode-2"]], ["operation"]],
        [[["Ode-2"], "no_evidence"], [["Big-Mill-7"]]],
    ]
    record = {"qid": "s", "question": "Is it?", "answer": True, "evidence": evidence}
    [question] = questions(f"strategyqa:{written(tmp_path / 'train.json', [record])}")
    assert question.answers == ("yes",)
    assert question.gold_ids == ("Mill-1", "Ode-2", "Big-Mill-7")
    assert question.gold_titles == ("Mill", "Ode", "Big-Mill")
    assert question.extra["evidence"] == evidence


def test_strategyqa_without_labels_is_read_and_bad_evidence_refused(tmp_path):
    bare = {"qid": "s", "question": "Is it?"}
    [question] = questions(f"strategyqa:{written(tmp_path / 'test.json', [bare])}")
    assert (question.answers, question.gold_ids) == ((), ())
    wrong = bare | {"answer": True, "evidence": ["Mill-1"]}
    with pytest.raises(BadInput, match=r"record 1: 'evidence' must hold a list per annotator"):
        questions(f"strategyqa:{written(tmp_path / 'test.json', [wrong])}")


def test_the_paragraphs_of_strategyqa_are_named_as_its_evidence(tmp_path):
    pages = {"Mill-1": {"title": "Mill", "section": "", "content": "Old.", "para_index": 1}}
    path = written(tmp_path / "paragraphs.json", pages)
    read = names.open_dataset("strategyqa").corpus.read
    assert list(read([path])) == [Passage("Mill-1", "Mill", "Old.")]
    with pytest.raises(BadInput, match=r"entry 1: no 'content'"):
        list(read([written(path, {"Mill-1": {"title": "Mill", "text": "Old."}})]))


def test_bamboogle_is_read_from_its_sheet(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text('\ufeffQuestion,Answer\r\n"Who, if any?",Orla\r\nWhere?,"Lund\n(Sweden)"\r\n')
    found = questions(f"bamboogle:{path}")
    assert [(q.id, q.text, q.answers) for q in found] == [
        ("bamboogle_0", "Who, if any?", ("Orla",)),
        ("bamboogle_1", "Where?", ("Lund\n(Sweden)",)),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Query,Answer\nWho?,Orla\n", r":2: no 'Question' \(its fields: Query, Answer\)"),
        (b"Question,Answer\nWho?,Orla\nWhere?\n", ":3: 'Answer' must be a string, found NoneType"),
        (b"Question,Answer\nWho?,\n", ":2: a row without answer"),
        (b'Question,Answer\n"Who?,Orla\n', ":1: not CSV, or cut short"),
        (b"Question,Answer\nZo\xeb?,Orla\n", ": not UTF-8 at byte"),
    ],
)
def test_a_bad_sheet_is_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "b.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=rf"b\.csv{said}.*multihop data get bamboogle\.$"):
        questions(f"bamboogle:{path}")


@pytest.mark.parametrize(
    ("answer", "text", "parts"),
    [
        ({"A": 3, "B": True, "C": ["x", 1.5]}, "A: 3; B: yes; C: x, 1.5", True),
        (["Orla", 1786], "Orla; 1786", True),
        ("Lund", "Lund", False),
        (False, "no", False),
        (2.5, "2.5", False),
    ],
)
def test_an_answer_of_fanoutqa_is_one_text_and_kept_as_published(tmp_path, answer, text, parts):
    page = {"pageid": 1, "revid": 2, "title": "Ode", "url": "u"}
    inner = {"id": "2", "question": "?", "answer": 1, "decomposition": [], "evidence": page}
    step = inner | {"id": "1", "decomposition": [inner], "evidence": None}
    record = {"id": "f", "question": "Which?", "answer": answer, "categories": ["Mills"]}
    path = written(tmp_path / "dev.json", [record | {"decomposition": [step]}])
    [question] = questions(f"fanoutqa:{path}")
    assert question.answers == (text,)
    assert ("answer_parts" in question.extra) == parts
    assert question.extra["answer"] == answer
    assert question.gold_titles == ("Ode",)
    assert question.kind == "Mills"


def test_the_test_questions_of_fanoutqa_have_pages_only(tmp_path):
    page = {"pageid": 1, "revid": 2, "title": "Ode", "url": "u"}
    record = {"id": "f", "question": "Which?", "necessary_evidence": [page], "categories": []}
    [question] = questions(f"fanoutqa:{written(tmp_path / 'test.json', [record])}")
    assert (question.answers, question.gold_titles) == ((), ("Ode",))
