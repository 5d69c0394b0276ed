"""The cross-encoder reranker, over a tiny random model made on the spot."""

from pathlib import Path

import pytest

from multihop.errors import BadInput, MissingExtra, RetrieverError
from multihop.retrievers.base import Reranker, warnings_of
from multihop.text import Hit, Passage, Query


def test_a_missing_package_is_named_with_its_extra(monkeypatch) -> None:
    from multihop.retrievers import cross_encoder

    monkeypatch.setattr(cross_encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"multihop\[dense\]"):
        cross_encoder.CrossEncoderReranker("any")


def tiny_bert(folder: Path, labels: int = 1) -> str:
    import torch
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(97, 123))]
    words += ["##" + chr(code) for code in range(97, 123)]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(
        vocab=str(folder / "vocab.txt"), model_max_length=24
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
        num_labels=labels,
        initializer_range=0.5,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def hits(*texts: str) -> list[Hit]:
    return [Hit(Passage(str(n), "", text), 1.0) for n, text in enumerate(texts)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    pytest.importorskip("sentence_transformers")
    return tiny_bert(tmp_path_factory.mktemp("cross"))


@pytest.mark.torch
async def test_passages_are_ordered_by_the_models_own_scores(folder) -> None:
    from sentence_transformers import CrossEncoder

    from multihop.retrievers.cross_encoder import CrossEncoderReranker

    texts = ["abc", "xyz", "mno", "q"]
    expected = CrossEncoder(folder).predict([("abc d", text) for text in texts])
    reranker = CrossEncoderReranker(folder, batch=2)
    assert isinstance(reranker, Reranker)
    queries = [Query("abc d"), Query("none"), Query("q")]
    found, nothing, other = await reranker.rerank(queries, [hits(*texts), [], hits("a")], 3)
    scores = {hit.passage.text: hit.score for hit in found}
    best = sorted(zip(expected, texts, strict=True), reverse=True)[:3]
    assert list(scores) == [text for _, text in best]
    assert list(scores.values()) == pytest.approx([float(s) for s, _ in best], abs=1e-5)
    assert nothing == []
    assert len(other) == 1
    await reranker.aclose()
    await reranker.aclose()
    with pytest.raises(RetrieverError, match="was closed"):
        await reranker.rerank(queries[:1], [hits("a")], 1)


@pytest.mark.torch
async def test_long_and_odd_texts_are_cut_by_tokens_and_reported(folder) -> None:
    from multihop.retrievers.cross_encoder import CrossEncoderReranker

    reranker = CrossEncoderReranker(folder)
    odd = hits("a" * 1_000_000, "b c " * 99, "\x00 \ud800 \U0001f600 שלום", "", "short")
    [found] = await reranker.rerank([Query("q \udfff" * 50)], [odd], 9)
    assert {hit.passage.id for hit in found} == set("01234")
    assert [hit.passage for hit in sorted(found, key=lambda h: h.passage.id)] == [
        hit.passage for hit in odd
    ]
    query, passages = warnings_of(found)
    assert query.endswith("the query was cut to 10 tokens.")
    assert "2 of 5 passages were cut to 11 tokens" in passages
    await reranker.aclose()


@pytest.mark.torch
def test_models_that_are_none_or_do_not_rank_are_refused(folder, tmp_path) -> None:
    from multihop.retrievers.cross_encoder import CrossEncoderReranker

    with pytest.raises(BadInput, match="gives 3 numbers a pair"):
        CrossEncoderReranker(tiny_bert(tmp_path, labels=3))
    with pytest.raises(BadInput, match="cannot be loaded") as refused:
        CrossEncoderReranker(str(tmp_path / "nothing" / "there"))
    assert "\n" not in str(refused.value)
