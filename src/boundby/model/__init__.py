"""Frozen types that every stage shares: the trace, the account, the report. No I/O, no algorithms."""
