"""What a rule is, and how all of them are run over one analysis."""
