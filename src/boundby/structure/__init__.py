"""Loops, phases and iterations of a program."""
