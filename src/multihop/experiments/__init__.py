"""Experiments: the paper's protocol over data sets, models and systems, from one file.

`config.read` reads the file, `plan.plan` lays out its runs, `running.run` runs what is missing
of them, `results.results` scores what there is, and `tables` shows it. docs/experiments.md has
the rules.
"""
