"""Comparison -> terminal, Markdown, HTML, JSON. One file per format."""
