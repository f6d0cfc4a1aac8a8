"""What a change would save: the trace as a graph of calls and operations, replayed with costs removed."""

from boundby.replay.counterfactuals import Counterfactuals, Filled, Undelayed, counterfactuals, savings_by_cause
from boundby.replay.predictor import Predictor
from boundby.replay.questions import FORMS, Answer, Savings, answer, next_bounds

__all__ = [
    "FORMS",
    "Answer",
    "Counterfactuals",
    "Filled",
    "Predictor",
    "Savings",
    "Undelayed",
    "answer",
    "counterfactuals",
    "next_bounds",
    "savings_by_cause",
]
