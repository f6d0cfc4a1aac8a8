"""The command line: each command parses, calls the library and prints. ``main`` alone catches errors."""
