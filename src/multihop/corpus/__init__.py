"""Passages on disk: JSONL corpora, and documents split into titled passages."""

from multihop.corpus.read import SUFFIXES, Reader, Rejected
from multihop.corpus.split import Splitting

__all__ = ["SUFFIXES", "Reader", "Rejected", "Splitting"]
