"""What a change would save: the trace as a graph of calls and operations, replayed with costs removed."""
