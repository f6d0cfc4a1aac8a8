"""Report -> text: one file per format, each with ``render(report, ...) -> str``. The command line writes it."""
