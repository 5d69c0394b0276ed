"""How one OpenAI-compatible server and one model want to be asked.

Servers differ in what they take. Nothing is guessed from a model's name: the first call asks
in the richest way, and each refusal leads to a poorer plan, which is kept when it works.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from multihop.lms.base import Prompt, Request, Turn, chat_text

PREFILL = {"continue_final_message": True, "add_generation_prompt": False}
"""Fields by which vLLM and SGLang continue the last turn instead of beginning a new one."""

RUNNING = "continuous_usage_stats"
"""Field of `stream_options` by which vLLM and SGLang count with every chunk."""

TIMINGS = "timings_per_token"
"""Field by which llama.cpp counts with every chunk."""

_DROPPABLE = ("temperature", "top_p", "seed", "stop")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent, and how.

    Attributes:
        chat: Turns are sent, not text.
        prefill: An unfinished assistant turn is sent to be continued.
        stream: The reply is streamed.
        usage: Token counts are asked for with every chunk (vLLM, SGLang), with the last one, or
            not.
        timings: llama.cpp's form of counts with every chunk is asked for.
        may_change: Which of `chat` and `prefill` were left to be found out.
        limit: The field that bounds a chat completion.
        many: The server takes `n`.
        thinks: The model was seen to think: it gets `room` on top of `max_tokens`, and stop
            strings are kept from the server, which would apply them to the thinking.
        room: Tokens for thinking.
        unsent: Sampling fields that the server refuses.
        extra: Further fields of every request.
    """

    chat: bool
    prefill: bool
    stream: bool
    usage: Literal["running", "last", "none"]
    timings: bool = False
    may_change: frozenset[str] = frozenset()
    limit: str = "max_tokens"
    many: bool = True
    thinks: bool = False
    room: int = 0
    unsent: frozenset[str] = frozenset()
    extra: Mapping[str, object] = field(default_factory=dict)

    def poorer(self, other: "Plan") -> "Plan":
        """Without what either plan does without; calls at the same time learn side by side."""
        order = ("none", "last", "running")
        return replace(
            self,
            chat=self.chat and other.chat,
            prefill=self.prefill and other.prefill,
            stream=self.stream and other.stream,
            usage=min(self.usage, other.usage, key=order.index),
            timings=self.timings and other.timings,
            limit=min(self.limit, other.limit),  # "max_completion_tokens", if either has it
            many=self.many and other.many,
            thinks=self.thinks or other.thinks,
            unsent=self.unsent | other.unsent,
        )

    def most_tokens(self, request: Request) -> int:
        """Tokens that may be generated, thinking included."""
        return request.max_tokens + (self.room if self.thinks else 0)

    def continues(self, prompt: Prompt) -> bool:
        """Whether the reply goes on with an unfinished turn."""
        last = prompt.turns[-1] if prompt.turns else None
        return bool(
            self.chat and self.prefill and last and last.speaker == "assistant" and last.text
        )

    def body(self, request: Request, model: str) -> tuple[dict[str, Any], str]:
        """The request's fields, and the prompt as one text where it is not `prompt.text`."""
        body: dict[str, Any] = {"model": model, "temperature": request.temperature}
        extra, sent = dict(self.extra), ""
        if self.chat:
            turns = self._turns(request.prompt)
            body["messages"] = [{"role": turn.speaker, "content": turn.text} for turn in turns]
            sent = chat_text(turns)
            if self.continues(request.prompt):
                extra |= PREFILL
        else:
            body["prompt"] = request.prompt.text
        body[self.limit if self.chat else "max_tokens"] = self.most_tokens(request)
        if request.logprobs:
            body["logprobs"] = True if self.chat else 1
        if request.top_p < 1:
            body["top_p"] = request.top_p
        if request.n > 1:
            body["n"] = request.n
        if request.seed is not None:
            body["seed"] = request.seed
        if request.stop and not self.thinks:
            body["stop"] = list(request.stop[:4])  # OpenAI takes no more
        for name in self.unsent:
            body.pop(name, None)
        if self.stream:
            body["stream"] = True
            if self.usage != "none":
                body["stream_options"] = {"include_usage": True}
            # Of several samples, some servers count each by itself and some all together.
            if self.usage == "running" and request.n == 1:
                body["stream_options"][RUNNING] = True
            if self.timings and request.n == 1:
                extra = {TIMINGS: True} | extra
        if extra:
            body["extra_body"] = extra
        return body, sent

    def _turns(self, prompt: Prompt) -> tuple[Turn, ...]:
        turns = prompt.turns or (Turn("user", prompt.text),)
        *before, last = turns
        if last.speaker != "assistant" or self.continues(prompt):
            return turns
        if last.text:
            asked = prompt.ask_next.replace("{chain}", last.text)
            if before and before[-1].speaker == "user":
                asked = before.pop().text + asked
            before.append(Turn("user", asked))
        return tuple(before)

    def warnings(self, request: Request) -> tuple[str, ...]:
        """What was asked for and is not sent."""
        asked = {
            "temperature": f"temperature {request.temperature:g}",
            "top_p": f"top_p {request.top_p:g}" if request.top_p < 1 else "",
            "seed": f"seed {request.seed}" if request.seed is not None else "",
        }
        return tuple(
            f"The server refuses {words}; its own default was used."
            for name, words in asked.items()
            if words and name in self.unsent
        )

    def after_refusal(self, request: Request, code: int, said: str, param: str) -> "Plan | None":
        """The next plan to try; None when nothing that was sent could be left out.

        Args:
            request: What was asked.
            code: The HTTP status.
            said: The server's message.
            param: The field that it names as wrong, or empty.
        """
        if "chat" in self.may_change and self.chat and _has_no_chat(code, said):
            return replace(self, chat=False)
        if code not in (400, 422):
            return None

        def names(name: str) -> bool:
            return param == name or bool(re.search(rf"\b{name}\b", said))

        body, _ = self.body(request, "")
        if "max_tokens" in body and self.chat and names("max_completion_tokens"):
            return replace(self, limit="max_completion_tokens")
        timings = self.timings and self.stream and request.n == 1 and TIMINGS not in self.extra
        if timings and names(TIMINGS):
            return replace(self, timings=False)
        options = body.get("stream_options", ())
        counts_early = RUNNING in options or timings
        # Who minds one field that is not OpenAI's will mind the other.
        plainer = replace(self, usage="last" if RUNNING in options else self.usage, timings=False)
        if options and (names("stream_options") or "usage" in said):
            return plainer if RUNNING in options else replace(self, usage="none")
        if self.stream and (names("stream") or names("streaming")):
            return replace(self, stream=False)
        for name in _DROPPABLE:
            if name in body and names(name):
                return replace(self, unsent=self.unsent | {name})
        if request.n > 1 and names("n"):
            return replace(self, many=False)
        # Not every server names the field that it does not know.
        prefills = "prefill" in self.may_change and self.continues(request.prompt)
        if prefills and any(names(name) for name in PREFILL):
            return replace(self, prefill=False)
        if counts_early:
            return plainer
        return replace(self, prefill=False) if prefills else None


def _has_no_chat(code: int, said: str) -> bool:
    return code in (404, 405) or (
        code in (400, 422) and bool(re.search(r"chat[ _]template|not a chat model", said))
    )
