"""Small annotated programs to try boundby on. Each runs by itself: ``python -m boundby.workloads.NAME``."""
