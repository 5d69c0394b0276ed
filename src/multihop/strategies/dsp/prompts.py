"""The templates of the programs; all words are ours."""

from multihop.strategies.dsp.template import Field, Template, lines, passages, plain

QUESTION = Field("question", "Question:", "${the question}", plain)
ANSWER = Field("answer", "Answer:", "${a short answer, often one to five words}", plain)
CONTEXT = Field(
    "context", "Passages:\n", "${passages that may hold the answer}", passages, given=True
)
RATIONALE = Field(
    "rationale",
    "Reasoning: Step by step,",
    "${the facts of the passages that lead to the answer, one after the other}",
    plain,
)
NOTES = Field("notes", "Notes:\n", "${what earlier searches have brought}", lines, given=True)
SUMMARY = Field("summary", "Summary:", "${what the passages say on the way to the answer}", plain)
PLAN = Field("summary", "Plan:", "${what has to be found out first}", plain)
QUERY = Field("query", "Search query:", "${a few words for a search engine}", plain)
HISTORY = Field("history", "Conversation:\n", "${earlier questions and answers}", lines, given=True)
OPTIONS = Field("options", "Options:\n", "${answers that were given}", lines, given=True)
CHOICE = Field("choice", "Best option:", "${its letter}", plain)

VANILLA = Template("Answer questions with short factual answers.", (QUESTION, ANSWER))

READ = Template(
    "Answer questions with short factual answers; the passages help.",
    (CONTEXT, QUESTION, ANSWER),
)

REASON = Template(
    "Reason over the passages, then answer the question with a short factual answer.",
    (CONTEXT, QUESTION, RATIONALE, ANSWER),
)

FIRST_HOP = Template(
    "Write a search query that finds the first fact needed to answer a complex question.",
    (QUESTION, PLAN, QUERY),
)

NEXT_HOP = Template(
    "Write a search query that finds the fact still missing to answer a complex question.",
    (CONTEXT, QUESTION, SUMMARY, QUERY),
)

NEXT_HOP_OR_STOP = Template(
    "Write a search query that finds the fact still missing to answer a complex question, or "
    "N/A when nothing is missing.",
    (CONTEXT, QUESTION, SUMMARY, QUERY),
)

CONCLUDE = Template(
    "Reason over notes and passages, then answer the question with a short factual answer.",
    (NOTES, CONTEXT, QUESTION, RATIONALE, ANSWER),
)

REWRITE = Template(
    "Write a search query that asks the last question of a conversation in full.",
    (HISTORY, QUESTION, QUERY),
)

REPLY = Template(
    "Answer the last question of a conversation from the passages.",
    (CONTEXT, HISTORY, QUESTION, ANSWER),
)

COMPARE = Template(
    "Choose the option that answers the question best.", (CONTEXT, QUESTION, OPTIONS, CHOICE)
)
