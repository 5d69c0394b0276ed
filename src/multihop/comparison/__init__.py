"""Runs side by side: paired tests on the same questions, and why wrong answers are wrong.

`compare` reads run folders and never runs a model; `diagnose` sorts one wrong answer by its trace;
`page.write` makes an HTML report of both. What the rules are, and why, stands in docs/compare.md.
"""

from multihop.comparison.diagnosis import CLASSES, Diagnosis, diagnose
from multihop.comparison.paired import Comparison, Measured, Row, Run, compare

__all__ = ["CLASSES", "Comparison", "Diagnosis", "Measured", "Row", "Run", "compare", "diagnose"]
