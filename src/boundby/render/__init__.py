"""Report -> text: a row in ``formats`` and one module a format, each with ``render(report, ...) -> str``."""
