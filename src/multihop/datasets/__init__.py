"""Questions with gold answers and passages, from files.

One module a format; each says on top where the format comes from and what is odd in it.
"""

from multihop.datasets.ircot import InstanceFile
from multihop.datasets.questions import QuestionFile

__all__ = ["InstanceFile", "QuestionFile"]
