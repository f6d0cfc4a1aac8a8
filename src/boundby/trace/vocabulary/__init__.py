"""Words of programming interfaces: what a call or a kernel is, told from its name."""
