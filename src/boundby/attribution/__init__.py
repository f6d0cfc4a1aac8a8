"""Ranges and regions, what threads do, gaps and waits: every nanosecond gets one cause and one region."""
