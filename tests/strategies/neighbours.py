"""Two passages of our own, and a question that needs both."""

from multihop.strategies import make
from multihop.testing import TitleRetriever
from multihop.text import Passage, Question

AIDA = Passage("aida", "Aida", "Aida is an opera with music by Giuseppe Verdi. It has four acts.")
VERDI = Passage(
    "verdi",
    "Giuseppe Verdi",
    "Giuseppe Verdi was an Italian composer born in Le Roncole. He wrote Nabucco early. "
    "Falstaff came late.",
)
QUESTION = Question("Where was the composer of Aida born?", answers=("Le Roncole",))


def made(name, lm, retriever=None, **settings):
    return make(
        name,
        lm=lm,
        retriever=retriever or TitleRetriever(AIDA, VERDI),
        **{"shots": 1, **settings},
    )
