"""What a change would save: the trace as a graph of calls and operations, replayed with costs removed."""

from boundby.replay.questions import FORMS, Answer, answer
from boundby.replay.removals import Predictor, Removals, removals, unreliable_timeline
from boundby.replay.scenarios import SCENARIOS

__all__ = ["FORMS", "SCENARIOS", "Answer", "Predictor", "Removals", "answer", "removals", "unreliable_timeline"]
