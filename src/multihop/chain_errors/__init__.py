"""Factual errors in chains of thought: found by a proxy, a judge or a person, and counted.

The paper (Trivedi et al., ACL 2023, section 5.2) had people mark the chains of 40 questions a
data set, and counted the chains with at least one sentence that is not true. Here each sentence
of a chain is checked against passages: `overlap` looks for its names, numbers and words,
`judge` asks a language model, `sheet` gives it to a person and reads the marks back, `counts`
adds up and says how far the three agree.
"""

from multihop.chain_errors.chains import Chain, Chosen, Sentence, choose
from multihop.chain_errors.counts import Agreement, Contrast, Count, agreement, contrast, count
from multihop.chain_errors.judge import judge, verdict
from multihop.chain_errors.overlap import Overlap, by_overlap, check
from multihop.chain_errors.sheet import Row, marks, read_sheet, write_sheet
from multihop.chain_errors.verdicts import Key, Verdict

__all__ = [
    "Agreement",
    "Chain",
    "Chosen",
    "Contrast",
    "Count",
    "Key",
    "Overlap",
    "Row",
    "Sentence",
    "Verdict",
    "agreement",
    "by_overlap",
    "check",
    "choose",
    "contrast",
    "count",
    "judge",
    "marks",
    "read_sheet",
    "verdict",
    "write_sheet",
]
