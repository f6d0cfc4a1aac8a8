"""Small annotated programs to try boundby on: one for each pattern, as found (``before``) and mended (``after``).

``python -m examples.workloads --list`` tells which there are; ``python -m examples.workloads NAME`` runs one and prints
its step time. Most need torch, and run on a CPU too, with less work in a step.
"""
