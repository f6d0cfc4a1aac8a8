"""Pure array code: interval algebra, correlation, range nesting, projection, the account."""
