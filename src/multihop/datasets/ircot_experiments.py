"""The 84 experiments of IRCoT's release: their settings, grids and names, by rule.

A run of ours that repeats one of them takes its settings from here and carries its name, so
that results stand side by side. What a setting does is told where it is used; here is only
which experiment has which.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from multihop.text import Json

System = Literal["ircot", "ircot_qa", "oner", "oner_qa", "nor_qa"]
"""With `_qa` a reader gives an answer; without it the paragraphs are the prediction."""

Model = Literal["codex", "flan-t5-base", "flan-t5-large", "flan-t5-xl", "flan-t5-xxl", "none"]
"""`none` is `oner`'s: it searches only (for IIRC, codex still proposes page titles)."""

Dataset = Literal["2wikimultihopqa", "hotpotqa", "iirc", "musique"]

LOOP_K, ONCE_K, RECALL_K = (2, 4, 6, 8), (5, 7, 9, 11, 13, 15), (15,)
"""Paragraphs per search: of the loop, of a single search for a reader, and for its recall."""

DISTRACTORS = (1, 2, 3)
"""M: distractors per demonstration; it picks the demonstration file."""

CAP = 15
"""Most paragraphs collected."""

_STATED = r".* answer is:? (.*)\.?"
_STEP_BY_STEP = "Answer the following question by reasoning step-by-step.\n"
_DIRECTLY = "Answer the following question.\n"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment.

    Attributes:
        system: What is run.
        model: The LM.
        dataset: Its data set.
    """

    system: System
    model: Model
    dataset: Dataset

    @property
    def config(self) -> str:
        """Its name in the release."""
        model = () if self.model == "none" else (self.model.replace("-", "_"),)
        return "_".join((self.system, *model, self.dataset))

    @property
    def reads(self) -> bool:
        """Whether its prediction is an answer rather than paragraphs."""
        return self.system.endswith("_qa")

    @property
    def grid(self) -> dict[str, tuple[int, ...]]:
        """Values tried on dev, by hyper-parameter: K, then M."""
        match self.system:
            case "nor_qa":
                return {}
            case "oner":
                return {"bm25_retrieval_count": RECALL_K}
            case "oner_qa":
                return {"bm25_retrieval_count": ONCE_K, "distractor_count": DISTRACTORS}
            case _:
                return {"bm25_retrieval_count": LOOP_K, "distractor_count": DISTRACTORS}

    def settings(self) -> list[dict[str, int]]:
        """All points of the grid, in its order: small K first, then small M."""
        points: list[dict[str, int]] = [{}]
        for name, values in self.grid.items():
            points = [{**point, name: value} for point in points for value in values]
        return points

    def names(self, demonstration_set: int) -> list[str]:
        """The release's names of this experiment's runs, in grid order.

        Args:
            demonstration_set: 1, 2 or 3.
        """
        first = f"{self.config}____prompt_set_{demonstration_set}"
        return [
            "___".join((first, *(f"{name}__{value}" for name, value in point.items())))
            for point in self.settings()
        ]

    def describe(self) -> dict[str, Json]:
        """Everything that the base configuration sets, as JSON data.

        K and M are the base configuration's placeholders (6 or 5, and 2): the grid replaces
        them before anything is run.
        """
        iirc = self.dataset == "iirc"
        # Flan-T5 sees the main passage last, except when it is the only passage.
        last = iirc and self._flan and self.system != "nor_qa"
        stages: list[Json] = [*self._stages()]
        return {
            "config": self.config,
            "system": self.system,
            "model": self.model,
            "dataset": self.dataset,
            "prediction_type": "answer" if self.reads else "pids",
            "reader_data": {
                "add_main_passage": iirc,
                "main_passage_position": "bottom" if last else "no_op",
            },
            "stages": stages,
            "grid": {name: [str(value) for value in values] for name, values in self.grid.items()},
        }

    # --- Stages, in the order of running ----------------------------------------------------

    def _stages(self) -> Iterator[Json]:
        if self.dataset == "iirc" and self.system != "nor_qa":
            yield self._generate_titles()
            yield self._map_titles()
        if self.system.startswith("ircot"):
            yield self._retrieve()
            yield self._reason()
            yield {
                "stage": "exit_check",
                "config_key": "step_by_step_exit_controller",
                "regex": _STATED,
                "max_sentences": 10,
                "cap": CAP,
            }
        elif self.system.startswith("oner"):
            yield self._retrieve()
        if self.reads:
            searched = self.system != "nor_qa"
            key = "generate_main_question" if searched else "generate_question"
            yield {"stage": "copy_question", "config_key": key}
            yield self._read()
            if not self._flan:
                yield {
                    "stage": "extract_answer",
                    "config_key": "extract_answer",
                    "regex": _STATED,
                    "whole_text_on_failure": True,
                    "remove_last_fullstop": True,
                }

    def _generate_titles(self) -> Json:
        return {
            "stage": "generate_titles",
            "config_key": "base_llm_title_gen",
            "titles_asked_for": 3,
            "shows_main_passage": True,
            "question_prefix": _DIRECTLY if self._flan else "",
            "demos": self._demonstrations("no_context_open_llm_retrieval"),
            "generation": self._generation(),
        }

    def _map_titles(self) -> Json:
        return {
            "stage": "retrieve",
            "config_key": "base_llm_title_map",
            "type": "titles",
            "count": 1,
            "cap": CAP,
            "query": "last_answer",
            "document_type": "title",
            "cumulative": False,
            "keeps_paragraphs": False,
            "limited_to_mapped_titles": False,
            "returns_pids": False,
        }

    def _retrieve(self) -> Json:
        loops = self.system.startswith("ircot")
        once = "generate_titles" if self.reads else "retrieve_and_reset_paragraphs"
        return {
            "stage": "retrieve",
            "config_key": "step_by_step_bm25_retriever" if loops else once,
            "type": "paragraphs",
            "count": 6 if loops else 5,
            "cap": CAP,
            "query": "question_or_last_generated_sentence" if loops else "original_question",
            "document_type": "title_paragraph_text",
            "cumulative": loops,
            "keeps_paragraphs": True,
            "limited_to_mapped_titles": self.dataset == "iirc",
            "returns_pids": self.system == "oner",
        }

    def _reason(self) -> Json:
        return {
            "stage": "reason",
            "config_key": "step_by_step_cot_reasoning_gen",
            "max_sentences": 10,
            "max_para_words": 350,
            "question_prefix": _STEP_BY_STEP if self._flan else "",
            "demos": self._demonstrations("gold_with_2_distractors_context_cot_qa"),
            "generation": self._generation(),
        }

    def _read(self) -> Json:
        searched = self.system != "nor_qa"
        shown = "gold_with_2_distractors_context" if searched else "no_context"
        written = "direct" if self._flan else "cot"
        return {
            "stage": "read",
            "config_key": "answer_main_question" if searched else "generate_answer",
            # Without a search only IIRC has something to show: its main passage.
            "with_context": searched or self.dataset == "iirc",
            "max_para_words": 350,
            "question_prefix": _DIRECTLY if self._flan else "",
            "demos": self._demonstrations(f"{shown}_{written}_qa"),
            "generation": self._generation(),
        }

    # --- The LM -----------------------------------------------------------------------------

    @property
    def _flan(self) -> bool:
        return self.model.startswith("flan")

    def _demonstrations(self, kind: str) -> Json:
        family = "flan_t5" if self._flan else "codex"
        return {
            "file": f"prompts/{self.dataset}/{kind}_{family}.txt",
            "static_drop": {
                "limit": 1_000_000 if self._flan else 8000,
                "estimated_generation": 0 if self._flan else 300,
                "tokenizer": f"google/{self.model}" if self._flan else "gpt2",
                "method": "last_first",
            },
            "order": "as in the qid list",
            "shuffle": False,
        }

    def _generation(self) -> Json:
        if self._flan:
            return {
                "backend": "llm_server",
                "model_name": f"google/{self.model}",
                "max_new_tokens": 200,
                "min_length": 1,
                "do_sample": False,
                "temperature": 1.0,
                "top_k": 50,
                "top_p": 1.0,
                "num_return_sequences": 1,
                "client_stop": "\n",
                "window_tokens": 6000,
                "window_tokenizer": f"google/{self.model}",
            }
        return {
            "backend": "openai_completion",
            "engine": "code-davinci-002",
            "temperature": 0,
            "max_tokens": 300,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "stop": ["\n"],
            "n": 1,
            "best_of": 1,
            "logprobs": 0,
            "window_tokens": 8000,
            "window_tokenizer": "gpt2",
            "retry_after_seconds": 50,
        }


def experiments() -> list[Experiment]:
    """All 84, by system, model and data set."""
    return [
        Experiment(system, model, dataset)
        for system in get_args(System)
        for model in get_args(Model)
        # Only OneR without a reader runs without a model of its own.
        if (system == "oner") == (model == "none")
        for dataset in get_args(Dataset)
    ]
