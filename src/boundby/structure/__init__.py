"""Loops and phases of programs that have no ranges; what a program's steps are, and how many of them are warm-up."""
