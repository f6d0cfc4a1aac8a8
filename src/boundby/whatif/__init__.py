"""What a change would save: the trace as a graph of calls and operations, replayed with costs removed."""

from boundby.whatif.removals import Removals, removals

__all__ = ["Removals", "removals"]
