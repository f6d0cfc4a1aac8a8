"""boundby where people profile: PyTorch's profiler, notebooks, trainers.

One file for each host. A host's events become a file or a Report, which ``boundby.api`` analyses: nothing is worked out
here, nothing in the flow imports this room, and no host is imported before it is used.
"""
