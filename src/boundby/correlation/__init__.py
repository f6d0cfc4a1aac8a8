"""Calls joined to the operations they launched, device clocks set, threads that work as one."""
