"""IM-RAG (Yang et al., SIGIR 2024): search in an inner monologue, then answer from it."""

from multihop.strategies.im_rag.engine import IMRAG
from multihop.strategies.im_rag.stopping import (
    Action,
    Critic,
    Decision,
    Fixed,
    Linear,
    Oracle,
    PredictedProgress,
    StopPolicy,
)

__all__ = [
    "IMRAG",
    "Action",
    "Critic",
    "Decision",
    "Fixed",
    "Linear",
    "Oracle",
    "PredictedProgress",
    "StopPolicy",
]
